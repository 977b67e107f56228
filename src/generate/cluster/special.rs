//! Clusters that belong to no service: unknown destinations, inbound traffic to undeclared ports, local SDS.

use super::{
    capabilities::Capabilities,
    connection_pool,
    draft::{
        Draft, explicit, metadata_exchange_filter, preserve_case_options, source_address, use_downstream_protocol,
    },
    dynamic,
    tls_context::ContextBuilder,
};
use crate::{
    generate::{dns_cache, names, sds},
    proto::{
        envoy::{
            config::{
                cluster::v3::{
                    Cluster,
                    cluster::{ClusterDiscoveryType, DiscoveryType, LbPolicy},
                },
                core::v3::{self as core, BindConfig, ExtraSourceAddress, Http1ProtocolOptions, Http2ProtocolOptions},
                endpoint::v3::{
                    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
                },
            },
            extensions::upstreams::http::v3::http_protocol_options::explicit_http_config::ProtocolConfig,
        },
        mesh::MeshConfig,
        networking::client_tls_settings::TlSmode,
        seconds,
    },
    push::{ProxyView, PushContext},
};

/// The cluster of refused requests.
pub const BLACK_HOLE: &str = "BlackHoleCluster";
/// The cluster of requests to unknown destinations, which are sent to their original address.
pub const PASSTHROUGH: &str = "PassthroughCluster";
/// The cluster of requests to undeclared ports of the workload.
pub const INBOUND_PASSTHROUGH: &str = "InboundPassthroughCluster";
/// The cluster of HTTP requests to unknown hosts that are resolved per request.
pub const ALLOW_ANY_DYNAMIC_DNS: &str = "AllowAnyDynamicDNSCluster";
/// Source addresses that the redirection of inbound traffic leaves alone.
pub(super) const PASSTHROUGH_BIND_V4: &str = "127.0.0.6";
/// As [`PASSTHROUGH_BIND_V4`].
pub(super) const PASSTHROUGH_BIND_V6: &str = "::6";
const CREDENTIAL_SOCKET: &str = "./var/run/secrets/credential-uds/socket";

/// A cluster without endpoints.
pub(super) fn black_hole(mesh: &MeshConfig) -> Cluster {
    let mut cluster = Draft::named(BLACK_HOLE).build();
    cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into()));
    cluster.connect_timeout = mesh.connect_timeout;
    cluster
}

/// To the address that the client dialled, within the mesh's default limits.
pub(super) fn passthrough(mesh: &MeshConfig, capabilities: &Capabilities) -> Cluster {
    let mut draft = Draft::named(PASSTHROUGH);
    draft.cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(DiscoveryType::OriginalDst.into()));
    draft.cluster.set_lb_policy(LbPolicy::ClusterProvided);
    let pool = mesh.default_traffic_policy.as_ref().and_then(|p| p.connection_pool.as_ref());
    connection_pool::apply(&mut draft, mesh, capabilities, pool, None);
    as_client_speaks(&mut draft, capabilities);
    add_metadata_exchange(&mut draft.cluster, capabilities);
    draft.build()
}

/// To the workload's own address, from a source address that is not redirected back.
pub(super) fn inbound_passthrough(mesh: &MeshConfig, capabilities: &Capabilities, view: &ProxyView) -> Cluster {
    let mut cluster = passthrough(mesh, capabilities);
    cluster.name = INBOUND_PASSTHROUGH.to_string();
    cluster.filters.clear();
    let (source, extra) = match (view.ipv4, view.ipv6) {
        (true, true) => (PASSTHROUGH_BIND_V4, Some(PASSTHROUGH_BIND_V6)),
        (true, false) => (PASSTHROUGH_BIND_V4, None),
        _ => (PASSTHROUGH_BIND_V6, None),
    };
    cluster.upstream_bind_config = Some(bind_config(source, extra));
    cluster
}

/// Binds to a source address, and to another one for the other family.
pub(super) fn bind_config(source: &str, extra: Option<&str>) -> BindConfig {
    let extra = extra.map(|ip| ExtraSourceAddress { address: Some(source_address(ip)), socket_options: None });
    BindConfig {
        source_address: Some(source_address(source)),
        extra_source_addresses: extra.into_iter().collect(),
        ..BindConfig::default()
    }
}

/// Resolves the host of each request; with TLS where the mesh's policy has it.
pub(super) fn allow_any_dynamic_dns(context: &PushContext, view: &ProxyView, capabilities: &Capabilities) -> Cluster {
    let mesh = &context.mesh().config;
    let tls =
        mesh.outbound_traffic_policy.as_ref().and_then(|p| p.tls.as_ref()).filter(|tls| tls.mode() != TlSmode::Disable);
    let mut draft = dynamic::draft(ALLOW_ANY_DYNAMIC_DNS, dns_cache::allow_any(context, view), tls.is_none());
    connection_pool::apply(&mut draft, mesh, capabilities, None, None);
    if let Some(tls) = tls {
        let builder =
            ContextBuilder { mesh, capabilities, port: None, service_accounts: &[], rule_has_selector: false };
        draft.cluster.transport_socket = builder.socket(&mut draft, tls);
    }
    // Options that TLS brings along stand alone, as in Istio: HTTP/1.1 then.
    if draft.http.is_none() {
        as_client_speaks(&mut draft, capabilities);
    }
    add_metadata_exchange(&mut draft.cluster, capabilities);
    draft.build()
}

/// The local SDS server for `credentialName` secrets.
pub(super) fn external_sds(mesh: &MeshConfig) -> Cluster {
    let mut draft = Draft::named(sds::EXTERNAL_CLUSTER);
    draft.cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into()));
    draft.cluster.connect_timeout = mesh.connect_timeout;
    draft.cluster.load_assignment = Some(ClusterLoadAssignment {
        cluster_name: sds::EXTERNAL_CLUSTER.to_string(),
        endpoints: vec![locality_of(names::address(CREDENTIAL_SOCKET, 0))],
        ..ClusterLoadAssignment::default()
    });
    let http2 = ProtocolConfig::Http2ProtocolOptions(Http2ProtocolOptions::default());
    draft.http().upstream_protocol_options = Some(explicit(http2));
    draft.build()
}

/// One endpoint in no particular locality.
pub(super) fn locality_of(address: core::Address) -> LocalityLbEndpoints {
    let endpoint = LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(Endpoint { address: Some(address), ..Endpoint::default() })),
        ..LbEndpoint::default()
    };
    LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..LocalityLbEndpoints::default() }
}

/// The client's protocol upstream; connections close after five idle minutes.
fn as_client_speaks(draft: &mut Draft, capabilities: &Capabilities) {
    let http1 =
        if capabilities.preserve_header_case { preserve_case_options() } else { Http1ProtocolOptions::default() };
    draft.http = None;
    let http = draft.http();
    http.common_http_protocol_options =
        Some(core::HttpProtocolOptions { idle_timeout: Some(seconds(300)), ..core::HttpProtocolOptions::default() });
    http.upstream_protocol_options = Some(use_downstream_protocol(http1));
}

fn add_metadata_exchange(cluster: &mut Cluster, capabilities: &Capabilities) {
    if capabilities.metadata_exchange() {
        cluster.filters.push(metadata_exchange_filter(&capabilities.flags.mx_additional_labels));
    }
}
