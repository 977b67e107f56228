//! `defaultConfig` of the mesh config: the settings that proxies start with.

use crate::{
    model::validation::{
        address::is_ip,
        check::{Check, Checked},
        names, range, traffic_policy,
    },
    proto::{
        mesh::{
            AuthenticationPolicy, PrivateKeyProvider, ProxyConfig, Tracing,
            private_key_provider::Provider,
            proxy_config::{ClusterName, ConnectionSettings},
            tracing::Tracer,
        },
        wkt,
    },
};

/// Stands for the address of the proxy's host.
const HOST_IP: &str = "$(HOST_IP)";
/// Deprecated metadata of proxies.
const DNS_AUTO_ALLOCATE: &str = "ISTIO_META_DNS_AUTO_ALLOCATE";
/// The smallest window of HTTP/2.
const SMALLEST_WINDOW: i32 = 65_535;

pub(in crate::model::validation) fn validate(c: &mut Check, config: &ProxyConfig) {
    for (name, text) in [("configPath", &config.config_path), ("binaryPath", &config.binary_path)] {
        c.field(name, required(text));
    }
    match &config.cluster_name {
        Some(ClusterName::ServiceCluster(name)) => c.field("serviceCluster", required(name)),
        Some(ClusterName::TracingServiceName(_)) => {}
        None => c.at("serviceCluster", |c| c.error("it or tracingServiceName is required")),
    }
    c.field("drainDuration", drain(config.drain_duration.as_ref()));
    c.field("discoveryAddress", required(&config.discovery_address).and_then(|()| address(&config.discovery_address)));
    if let Some(tracing) = &config.tracing {
        c.at("tracing", |c| tracers(c, tracing));
    }
    let service = |service: &Option<_>| service.as_ref().map(|s: &crate::proto::mesh::RemoteService| s.address.clone());
    for (name, text) in [
        ("statsdUdpAddress", Some(config.statsd_udp_address.clone())),
        ("envoyMetricsServiceAddress", Some(config.envoy_metrics_service_address.clone())),
        ("envoyMetricsService.address", service(&config.envoy_metrics_service)),
        ("envoyAccessLogService.address", service(&config.envoy_access_log_service)),
    ] {
        c.field(name, text.filter(|text| !text.is_empty()).map_or(Ok(()), |text| address(&text)));
    }
    if !config.envoy_metrics_service_address.is_empty() {
        c.at("envoyMetricsServiceAddress", |c| c.warn("it is deprecated; use envoyMetricsService"));
    }
    if config.proxy_metadata.contains_key(DNS_AUTO_ALLOCATE) {
        c.at(format_args!("proxyMetadata.{DNS_AUTO_ALLOCATE}"), |c| {
            c.warn("it is deprecated: addresses of ServiceEntries are allocated by the control plane");
        });
    }
    c.field("proxyAdminPort", range::signed_port(config.proxy_admin_port));
    c.field("controlPlaneAuthPolicy", authentication(config.control_plane_auth_policy));
    c.field("statusPort", range::signed_port(config.status_port));
    if let Some(provider) = &config.private_key_provider {
        c.at("privateKeyProvider", |c| private_keys(c, provider));
    }
    if let Some(settings) = &config.connection_settings {
        c.at("connectionSettings", |c| connections(c, settings));
    }
}

fn required(text: &str) -> Checked {
    if text.is_empty() { Err("it is required".to_string()) } else { Ok(()) }
}

/// The authentication of proxies to the control plane, by its number.
pub(in crate::model::validation) fn authentication(policy: i32) -> Checked {
    match AuthenticationPolicy::try_from(policy) {
        Ok(AuthenticationPolicy::None | AuthenticationPolicy::MutualTls) => Ok(()),
        _ => Err("it must be NONE or MUTUAL_TLS".to_string()),
    }
}

pub(in crate::model::validation) fn drain(duration: Option<&wkt::Duration>) -> Checked {
    let duration = duration.copied().unwrap_or_default();
    range::duration(&duration)?;
    if duration.nanos == 0 { Ok(()) } else { Err("the duration must be a whole number of seconds".to_string()) }
}

/// `host:port`, where the host is a DNS name or an IP address, an IPv6 one in brackets.
pub(in crate::model::validation) fn address(text: &str) -> Checked {
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(format!("{text:?} must be written host:port"));
    };
    let bracketed = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    if bracketed.is_none() && host.contains([':', '[', ']']) {
        return Err(format!("{text:?} must be written host:port, an IPv6 address in brackets"));
    }
    let host = bracketed.unwrap_or(host);
    let number: i64 = port.parse().map_err(|_| format!("{port:?} is not a port"))?;
    range::port(u32::try_from(number).unwrap_or(0)).map_err(|_| format!("port {number} must be in 1..65535"))?;
    if names::fqdn(host).is_ok() || is_ip(host) {
        return Ok(());
    }
    Err(format!("{host:?} is neither a DNS name nor an IP address"))
}

fn tracers(c: &mut Check, tracing: &Tracing) {
    let on_host = |text: &str| address(&text.replacen(HOST_IP, "127.0.0.1", 1));
    match &tracing.tracer {
        Some(Tracer::Lightstep(lightstep)) => {
            c.field("lightstep.address", required(&lightstep.address).and_then(|()| address(&lightstep.address)));
            c.field("lightstep.accessToken", required(&lightstep.access_token));
        }
        Some(Tracer::Zipkin(zipkin)) => c.field("zipkin.address", on_host(&zipkin.address)),
        Some(Tracer::Datadog(datadog)) => c.field("datadog.address", on_host(&datadog.address)),
        Some(Tracer::Stackdriver(_) | Tracer::OpenCensusAgent(_)) | None => {}
    }
    traffic_policy::client_tls(c, "tlsSettings", "", tracing.tls_settings.as_ref());
}

fn private_keys(c: &mut Check, provider: &PrivateKeyProvider) {
    let (name, delay) = match &provider.provider {
        Some(Provider::Cryptomb(settings)) => ("cryptomb.pollDelay", settings.poll_delay),
        Some(Provider::Qat(settings)) => ("qat.pollDelay", settings.poll_delay),
        None => return c.error("one of cryptomb and qat is required"),
    };
    let set = delay.is_some_and(|delay| delay != wkt::Duration::default());
    c.need(set, format_args!("{name} must be set, and not be zero"));
}

pub(in crate::model::validation) fn connections(c: &mut Check, settings: &ConnectionSettings) {
    for (name, value, least) in [
        ("listenerPerConnectionBufferLimitBytes", settings.listener_per_connection_buffer_limit_bytes, 0),
        ("clusterPerConnectionBufferLimitBytes", settings.cluster_per_connection_buffer_limit_bytes, 0),
        ("httpMaxConcurrentStreams", settings.http_max_concurrent_streams, 1),
        ("http2InitialStreamWindowSize", settings.http2_initial_stream_window_size, SMALLEST_WINDOW),
        ("http2InitialConnectionWindowSize", settings.http2_initial_connection_window_size, SMALLEST_WINDOW),
        ("listenerConnectionLimit", settings.listener_connection_limit, 1),
        ("globalDownstreamConnectionLimit", settings.global_downstream_connection_limit, 1),
    ] {
        c.need(value.is_none_or(|value| value >= least), format_args!("{name} must be at least {least}"));
    }
    for (name, duration) in [
        ("httpIdleTimeout", &settings.http_idle_timeout),
        ("httpMaxConnectionDuration", &settings.http_max_connection_duration),
        ("httpDrainTimeout", &settings.http_drain_timeout),
        ("httpRequestTimeout", &settings.http_request_timeout),
        ("httpRequestHeadersTimeout", &settings.http_request_headers_timeout),
        ("httpStreamIdleTimeout", &settings.http_stream_idle_timeout),
        ("httpMaxStreamDuration", &settings.http_max_stream_duration),
    ] {
        let negative = duration.as_ref().is_some_and(|d| d.seconds < 0 || d.nanos < 0);
        c.need(!negative, format_args!("{name} must not be negative"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for good in ["istiod:15012", "10.0.0.1:1", "[2001:db8::1]:80", "a.b.svc.:65535"] {
            assert!(address(good).is_ok(), "{good}");
        }
        for bad in
            ["", "a", "a:", "a:0", "a:65536", "a:-1", ":80", "2001:db8::1:80", "[::1]", "[a:b]:1", "a..:80", "[a:1"]
        {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
