//! The HTTP filters of a connection manager, in Istio's order; filters that only Istio's build of Envoy has are added only
//! where the metadata of the proxy declares it.
//!
//! Order: peer metadata, external authorization, tokens, authorization (extensions by their phases between these and behind), grpc-web, grpc-stats, ALPN, fault, CORS, metrics,
//! stateful session, dynamic forward proxy, router.

use super::{
    builder::Builder,
    dynamic_dns,
    filter::{METADATA_EXCHANGE, http_filter, http_filter_of_any, peer_metadata},
    http_options::HttpOptions,
    telemetry::metrics::peer_filters,
};
use crate::{
    generate::proxy_config::ListenerClass,
    model::{Features, Protocol, Resolution, host},
    proto::{
        envoy::extensions::filters::{
            http::{
                cors::v3::Cors,
                fault::v3::HttpFault,
                grpc_stats::v3::{FilterConfig as GrpcStats, filter_config::PerMethodStatSpecifier},
                grpc_web::v3::GrpcWeb,
                router::v3::Router,
                stateful_session::v3::StatefulSession,
            },
            network::http_connection_manager::v3::HttpFilter,
        },
        istio::envoy::config::filter::http::alpn::v2alpha1::{
            FilterConfig as Alpn,
            filter_config::{AlpnOverride, Protocol as AlpnProtocol},
        },
    },
    push::extensions::Phase,
};
use serde_json::json;

/// All filters of a connection manager.
#[must_use]
pub fn build(builder: &Builder, options: &HttpOptions) -> Vec<HttpFilter> {
    let features = builder.features();
    let mut filters = Vec::with_capacity(12);
    if features.enable_metadata_exchange && builder.is_istio_proxy() {
        filters.push(metadata_exchange(features, options));
    }
    if let Some(own) = builder.view.own.as_deref().filter(|_| builder.telemetry(options.class).counts) {
        filters.extend(peer_filters(own, options.class, options.peer_is_proven));
    }
    filters.extend(security(builder, options));
    if options.protocol == Protocol::GrpcWeb {
        filters.push(http_filter("envoy.filters.http.grpc_web", &GrpcWeb {}));
    }
    filters.push(grpc_stats());
    if features.enable_alpn_filter && options.class != ListenerClass::SidecarInbound && builder.is_istio_proxy() {
        filters.push(http_filter("istio.alpn", &alpn()));
    }
    filters.push(http_filter("envoy.filters.http.fault", &HttpFault::default()));
    filters.push(http_filter("envoy.filters.http.cors", &Cors {}));
    filters.extend(builder.telemetry(options.class).stats.http.iter().cloned());
    if features.enable_persistent_session_filter && options.class != ListenerClass::SidecarInbound {
        filters.push(http_filter("envoy.filters.http.stateful_session", &StatefulSession::default()));
    }
    filters.extend(forward_proxies(builder, options));
    filters.push(router(options.suppress_debug_headers));
    filters
}

/// The authorization filters: external authorizers, tokens, policies. They apply to the requests that a workload receives.
/// Extensions stand between them by their phases.
fn security(builder: &Builder, options: &HttpOptions) -> Vec<HttpFilter> {
    let access = (options.class != ListenerClass::SidecarOutbound).then(|| builder.access());
    let extensions = |phase| builder.extensions().http(phase, options.class, options.port);
    let mut filters: Vec<HttpFilter> = Vec::new();
    filters.extend(access.into_iter().flat_map(|access| access.authorization.custom_http.iter().cloned()));
    filters.extend(extensions(Phase::Authn));
    filters.extend(access.and_then(|access| access.tokens.clone()));
    filters.extend(extensions(Phase::Authz));
    filters.extend(access.into_iter().flat_map(|access| access.authorization.http.iter().cloned()));
    filters.extend(extensions(Phase::Stats).chain(extensions(Phase::Unspecified)));
    filters
}

/// Filters that resolve hosts on demand, for sidecars' outbound listeners.
fn forward_proxies(builder: &Builder, options: &HttpOptions) -> Vec<HttpFilter> {
    let mut filters = Vec::new();
    if options.class != ListenerClass::SidecarOutbound {
        return filters;
    }
    let service = options.service.as_deref();
    if let Some(service) = service.filter(|s| host::is_wildcard(&s.hostname) && s.resolution == Resolution::DynamicDns)
    {
        filters.push(dynamic_dns::http_filter_for(builder, &service.hostname));
    }
    if dynamic_dns::allow_any(builder) {
        filters.push(dynamic_dns::allow_any_http_filter(builder));
    }
    filters
}

fn router(suppress_envoy_headers: bool) -> HttpFilter {
    http_filter("envoy.filters.http.router", &Router { suppress_envoy_headers, ..Default::default() })
}

fn grpc_stats() -> HttpFilter {
    let config = GrpcStats {
        emit_filter_state: true,
        per_method_stat_specifier: Some(PerMethodStatSpecifier::StatsForAllMethods(false)),
        ..Default::default()
    };
    http_filter("envoy.filters.http.grpc_stats", &config)
}

fn alpn() -> Alpn {
    let set = |protocol: AlpnProtocol, names: [&str; 3]| AlpnOverride {
        upstream_protocol: protocol.into(),
        alpn_override: names.map(String::from).to_vec(),
    };
    Alpn {
        alpn_override: vec![
            set(AlpnProtocol::Http10, ["istio-http/1.0", "istio", "http/1.0"]),
            set(AlpnProtocol::Http11, ["istio-http/1.1", "istio", "http/1.1"]),
            set(AlpnProtocol::Http2, ["istio-h2", "istio", "h2"]),
        ],
    }
}

fn metadata_exchange(features: &Features, options: &HttpOptions) -> HttpFilter {
    let discovery = json!([{"istio_headers": {}}, {"workload_discovery": {}}]);
    let config = if options.class == ListenerClass::SidecarInbound {
        json!({"downstream_discovery": discovery, "downstream_propagation": [{"istio_headers": {}}]})
    } else if options.skip_mx_headers {
        json!({"upstream_discovery": discovery,
               "upstream_propagation": [{"istio_headers": {"skip_external_clusters": true}}]})
    } else {
        json!({"upstream_discovery": discovery, "upstream_propagation": [{"istio_headers": {}}]})
    };
    http_filter_of_any(METADATA_EXCHANGE, peer_metadata("io.istio.http.peer_metadata.Config", features, config))
}
