//! Connection pool, circuit breakers, TCP keepalive and the protocol to the upstream
//! (Istio's `applyConnectionPool`, `applyH2Upgrade`, `setUpstreamProtocol`).

use super::{capabilities::Capabilities, draft::Draft};
use crate::{
    model::{NodeType, Port},
    proto::{
        envoy::{
            config::{
                cluster::v3::{
                    CircuitBreakers, Cluster, UpstreamConnectionOptions,
                    circuit_breakers::{Thresholds, thresholds},
                },
                core::v3::{self as core, KeepaliveSettings},
            },
            r#type::v3::Percent,
        },
        mesh::{MeshConfig, mesh_config},
        networking::{
            ConnectionPoolSettings,
            connection_pool_settings::{
                HttpSettings, TcpSettings, http_settings::H2UpgradePolicy, tcp_settings::TcpKeepalive,
            },
            traffic_policy::RetryBudget,
        },
    },
};

/// Applies the settings; a field that they leave out has no limit, or the mesh's connect timeout or keepalive.
pub(super) fn apply(
    draft: &mut Draft,
    mesh: &MeshConfig,
    capabilities: &Capabilities,
    settings: Option<&ConnectionPoolSettings>,
    retry_budget: Option<&RetryBudget>,
) {
    let tcp = settings.and_then(|s| s.tcp.as_ref());
    let http = settings.and_then(|s| s.http.as_ref());
    let connect_timeout = tcp.and_then(|t| t.connect_timeout);
    draft.cluster.connect_timeout = connect_timeout.or(mesh.connect_timeout);
    keepalive(&mut draft.cluster, mesh.tcp_keepalive.as_ref());
    keepalive(&mut draft.cluster, tcp.and_then(|t| t.tcp_keepalive.as_ref()));
    let thresholds = thresholds(capabilities, tcp, http, retry_budget);
    draft.cluster.circuit_breakers =
        Some(CircuitBreakers { thresholds: vec![thresholds], ..CircuitBreakers::default() });
    http_options(draft, tcp, http);
    if http.is_some_and(|h| h.use_client_protocol) {
        draft.set_use_downstream_protocol();
    }
}

fn thresholds(
    capabilities: &Capabilities,
    tcp: Option<&TcpSettings>,
    http: Option<&HttpSettings>,
    retry_budget: Option<&RetryBudget>,
) -> Thresholds {
    let limit = |value: Option<i32>| value.and_then(positive).unwrap_or(u32::MAX);
    let retry_budget = retry_budget.map(|budget| thresholds::RetryBudget {
        budget_percent: Some(Percent { value: budget.percent.unwrap_or(20.0) }),
        budget_interval: budget.budget_interval,
        min_retry_concurrency: Some(if budget.min_retry_concurrency > 0 { budget.min_retry_concurrency } else { 3 }),
    });
    Thresholds {
        max_connections: Some(limit(tcp.map(|t| t.max_connections))),
        max_pending_requests: Some(limit(http.map(|h| h.http1_max_pending_requests))),
        max_requests: Some(limit(http.map(|h| h.http2_max_requests))),
        max_retries: Some(limit(http.map(|h| h.max_retries))),
        track_remaining: !capabilities.flags.disable_track_remaining,
        retry_budget,
        ..Thresholds::default()
    }
}

fn http_options(draft: &mut Draft, tcp: Option<&TcpSettings>, http: Option<&HttpSettings>) {
    let idle_timeout = http.and_then(|h| h.idle_timeout).or(tcp.and_then(|t| t.idle_timeout));
    let max_requests = http.and_then(|h| positive(h.max_requests_per_connection));
    let max_streams = http.and_then(|h| positive(h.max_concurrent_streams));
    let max_duration = tcp.and_then(|t| t.max_connection_duration);
    let keepalive = http.and_then(|h| h.http2_keep_alive.as_ref());
    if idle_timeout.is_none()
        && max_requests.is_none()
        && max_streams.is_none()
        && max_duration.is_none()
        && keepalive.is_none()
    {
        return;
    }
    let common = draft.http().common_http_protocol_options.get_or_insert_default();
    common.idle_timeout = idle_timeout.or(common.idle_timeout);
    common.max_requests_per_connection = max_requests.or(common.max_requests_per_connection);
    common.max_connection_duration = max_duration.or(common.max_connection_duration);
    if let Some(http2) = draft.http2() {
        http2.max_concurrent_streams = max_streams.or(http2.max_concurrent_streams);
        if let Some(keepalive) = keepalive {
            http2.connection_keepalive = Some(KeepaliveSettings {
                interval: keepalive.interval,
                timeout: keepalive.timeout,
                ..KeepaliveSettings::default()
            });
        }
    }
}

fn positive(value: i32) -> Option<u32> {
    u32::try_from(value).ok().filter(|v| *v > 0)
}

fn keepalive(cluster: &mut Cluster, settings: Option<&TcpKeepalive>) {
    let Some(settings) = settings else {
        return;
    };
    let options = cluster.upstream_connection_options.get_or_insert_with(|| UpstreamConnectionOptions {
        tcp_keepalive: Some(core::TcpKeepalive::default()),
        ..UpstreamConnectionOptions::default()
    });
    let keepalive = options.tcp_keepalive.get_or_insert_default();
    let whole_seconds = |d: &crate::proto::wkt::Duration| u32::try_from(d.seconds).unwrap_or_default();
    if settings.probes > 0 {
        keepalive.keepalive_probes = Some(settings.probes);
    }
    if let Some(time) = &settings.time {
        keepalive.keepalive_time = Some(whole_seconds(time));
    }
    if let Some(interval) = &settings.interval {
        keepalive.keepalive_interval = Some(whole_seconds(interval));
    }
}

/// HTTP/2 to the upstream where the rule sets it, or where the mesh does and the port is declared as HTTP.
pub(super) fn upgrade_to_http2(
    draft: &mut Draft,
    port: &Port,
    mesh: &MeshConfig,
    settings: Option<&ConnectionPoolSettings>,
) {
    let http = settings.and_then(|s| s.http.as_ref());
    let upgrade = match http {
        Some(http) if http.use_client_protocol => false,
        Some(http) if http.h2_upgrade_policy() == H2UpgradePolicy::Upgrade => true,
        Some(http) if http.h2_upgrade_policy() == H2UpgradePolicy::DoNotUpgrade => false,
        _ => port.protocol.is_http() && mesh.h2_upgrade_policy() == mesh_config::H2UpgradePolicy::Upgrade,
    };
    if upgrade {
        draft.set_http2();
    }
}

/// The protocol that follows from the port: HTTP/2 where declared; the client's for an undeclared port of a sidecar, which
/// sniffs it. A gateway does not, since its clients may use a protocol that the upstream lacks.
pub(super) fn upstream_protocol(draft: &mut Draft, port: &Port, capabilities: &Capabilities) {
    if port.protocol.is_http2() {
        draft.set_http2();
        return;
    }
    let undeclared = port.protocol.is_unsupported();
    if (port.protocol.is_http() || undeclared) && capabilities.preserve_header_case {
        draft.set_preserved_http1();
    }
    if undeclared && capabilities.node_type == NodeType::Sidecar {
        draft.set_use_downstream_protocol();
    }
}
