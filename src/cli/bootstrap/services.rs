//! Services that Envoy itself reports to: traces, access logs, metrics. Each is a cluster of the bootstrap, with the names that
//! the listeners of a control plane use.

use serde_json::{Value, json};

use super::{
    proxy::{Proxy, http2},
    secrets::Secrets,
};
use crate::{
    cli::server::split_address,
    proto::{
        mesh::{RemoteService, Tracing, tracing::Tracer},
        networking::{
            ClientTlsSettings, client_tls_settings::TlSmode, connection_pool_settings::tcp_settings::TcpKeepalive,
        },
    },
};

/// The host of the machine, as settings write it; Istio's agent reads it from the environment as well.
const HOST_IP: &str = "$(HOST_IP)";
/// The name in the TLS greeting, where settings with Istio's certificates give none.
const TRACER_NAME: &str = "tracer";

/// A service to report to.
struct Service<'a> {
    /// Name of the cluster.
    name: &'a str,
    /// Path of the setting.
    setting: &'a str,
    address: &'a str,
    http2: bool,
    tls: Option<&'a ClientTlsSettings>,
    /// The name in the TLS greeting with Istio's certificates.
    sni: &'a str,
    keepalive: Option<TcpKeepalive>,
}

/// Adds the clusters and sinks.
pub(super) fn add(bootstrap: &mut Value, proxy: &Proxy<'_>, secrets: &mut Secrets) -> Result<Vec<String>, String> {
    let settings = proxy.settings;
    let mut notes = Vec::new();
    if let Some(tracing) = &settings.tracing {
        notes.extend(tracer(bootstrap, tracing, proxy, secrets)?);
    }
    let mut sinks = Vec::new();
    #[allow(deprecated, reason = "it still counts where the newer field is empty")]
    let older = settings.envoy_metrics_service_address.clone();
    let metrics = remote(settings.envoy_metrics_service.as_ref()).cloned();
    let metrics =
        metrics.or_else(|| remote(Some(&RemoteService { address: older, ..RemoteService::default() })).cloned());
    if let Some(service) = &metrics {
        push(bootstrap, &of_remote("envoy_metrics_service", "envoyMetricsService", service), proxy, secrets)?;
        sinks.push(json!({"name": "envoy.stat_sinks.metrics_service", "typed_config": {
            "@type": "type.googleapis.com/envoy.config.metrics.v3.MetricsServiceConfig",
            "transport_api_version": "V3",
            "grpc_service": {"envoy_grpc": {"cluster_name": "envoy_metrics_service"}},
        }}));
    }
    if let Some(service) = remote(settings.envoy_access_log_service.as_ref()) {
        push(bootstrap, &of_remote("envoy_accesslog_service", "envoyAccessLogService", service), proxy, secrets)?;
    }
    if !settings.statsd_udp_address.is_empty() {
        let (host, port) = parsed("statsdUdpAddress", &settings.statsd_udp_address)?;
        if host.parse::<std::net::IpAddr>().is_err() {
            let text = &settings.statsd_udp_address;
            return Err(format!("statsdUdpAddress {text:?}: Envoy's statsd sink takes an IP address, not a name"));
        }
        sinks.push(json!({"name": "envoy.stat_sinks.statsd", "typed_config": {
            "@type": "type.googleapis.com/envoy.config.metrics.v3.StatsdSink",
            "address": {"socket_address": {"protocol": "UDP", "address": host, "port_value": port}},
        }}));
    }
    if !sinks.is_empty() {
        bootstrap["stats_sinks"] = sinks.into();
    }
    Ok(notes)
}

fn remote(service: Option<&RemoteService>) -> Option<&RemoteService> {
    service.filter(|service| !service.address.is_empty())
}

fn of_remote<'a>(name: &'a str, setting: &'a str, service: &'a RemoteService) -> Service<'a> {
    let RemoteService { address, tls_settings, tcp_keepalive } = service;
    let (tls, keepalive) = (tls_settings.as_ref(), *tcp_keepalive);
    Service { name, setting, address, http2: true, tls, sni: name, keepalive }
}

/// The tracer that listeners without a provider of their own use, and its cluster.
fn tracer(
    bootstrap: &mut Value,
    tracing: &Tracing,
    proxy: &Proxy<'_>,
    secrets: &mut Secrets,
) -> Result<Option<String>, String> {
    let service = |name, setting, address| Service {
        name,
        setting,
        address,
        http2: false,
        tls: tracing.tls_settings.as_ref(),
        sni: TRACER_NAME,
        keepalive: None,
    };
    let gone = |name: &str| {
        Ok(Some(format!(
            "tracing.{name} has no effect: Envoy has no such tracer any more; an extension provider of the mesh config sends traces"
        )))
    };
    let (service, http) = match &tracing.tracer {
        None => return Ok(None),
        Some(Tracer::Zipkin(zipkin)) => (
            service("zipkin", "tracing.zipkin.address", &zipkin.address),
            json!({"name": "envoy.tracers.zipkin", "typed_config": {
                "@type": "type.googleapis.com/envoy.config.trace.v3.ZipkinConfig",
                "collector_cluster": "zipkin",
                "collector_endpoint": "/api/v2/spans",
                "collector_endpoint_version": "HTTP_JSON",
                "trace_id_128bit": true,
                "shared_span_context": false,
            }}),
        ),
        Some(Tracer::Datadog(datadog)) => (
            service("datadog_agent", "tracing.datadog.address", &datadog.address),
            json!({"name": "envoy.tracers.datadog", "typed_config": {
                "@type": "type.googleapis.com/envoy.config.trace.v3.DatadogConfig",
                "collector_cluster": "datadog_agent",
                "service_name": proxy.cluster,
            }}),
        ),
        Some(Tracer::Lightstep(_)) => return gone("lightstep"),
        Some(Tracer::Stackdriver(_)) => return gone("stackdriver"),
        Some(Tracer::OpenCensusAgent(_)) => return gone("openCensusAgent"),
    };
    push(bootstrap, &service, proxy, secrets)?;
    bootstrap["tracing"] = json!({"http": http});
    Ok(None)
}

/// Host and port of a setting.
fn parsed(setting: &str, text: &str) -> Result<(String, u16), String> {
    let (host, port) = split_address(text).ok_or_else(|| format!("{setting} {text:?} is not HOST:PORT"))?;
    if host != HOST_IP {
        return Ok((host.to_string(), port));
    }
    let host = std::env::var("HOST_IP").ok().filter(|host| !host.is_empty());
    Ok((host.ok_or_else(|| format!("{setting} {text:?}: the environment has no HOST_IP"))?, port))
}

fn push(bootstrap: &mut Value, service: &Service<'_>, proxy: &Proxy<'_>, secrets: &mut Secrets) -> Result<(), String> {
    let name = service.name;
    let (host, port) = parsed(service.setting, service.address)?;
    let endpoint = json!({"address": {"socket_address": {"address": host, "port_value": port}}});
    let mut cluster = json!({
        "name": name,
        "alt_stat_name": format!("{name};"),
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]},
    });
    if host.parse::<std::net::IpAddr>().is_ok() {
        cluster["type"] = "STATIC".into();
    } else {
        cluster["type"] = "STRICT_DNS".into();
        cluster["dns_lookup_family"] = proxy.dns_family().into();
    }
    if service.http2 {
        cluster["typed_extension_protocol_options"] = http2();
    }
    if let Some(keepalive) = &service.keepalive {
        cluster["upstream_connection_options"] = json!({"tcp_keepalive": keepalive_of(keepalive)});
    }
    if let Some(tls) = service.tls.filter(|tls| tls.mode() != TlSmode::Disable) {
        let path = service.setting.split('.').next().unwrap_or_default();
        let socket =
            secrets.client(tls, service.sni, service.http2, proxy).map_err(|e| format!("{path}.tlsSettings: {e}"))?;
        cluster["transport_socket"] = socket;
    }
    if let Some(clusters) = bootstrap["static_resources"]["clusters"].as_array_mut() {
        clusters.push(cluster);
    }
    Ok(())
}

fn keepalive_of(given: &TcpKeepalive) -> Value {
    let seconds = |duration: Option<crate::proto::wkt::Duration>| duration.map_or(0, |d| d.seconds.max(0));
    let parts = [
        ("keepalive_probes", i64::from(given.probes)),
        ("keepalive_time", seconds(given.time)),
        ("keepalive_interval", seconds(given.interval)),
    ];
    let set = parts.into_iter().filter(|(_, number)| *number > 0);
    Value::Object(set.map(|(key, number)| (key.to_string(), number.into())).collect())
}
