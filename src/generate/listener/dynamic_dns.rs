//! Filters that resolve a host when it is asked for: wildcard services of resolution `DYNAMIC_DNS`, and the outbound policy
//! `ALLOW_ANY_DYNAMIC_DNS`. The DNS cache settings must be those of the clusters behind them: Envoy shares caches by name.

use super::{
    builder::{Builder, is_ip},
    http_filters::http_filter,
    tcp::network_filter,
};
use crate::{
    generate::names::address,
    proto::{
        envoy::{
            config::{cluster::v3::cluster::DnsLookupFamily, core::v3::TypedExtensionConfig, listener::v3::Filter},
            extensions::{
                common::dynamic_forward_proxy::v3::DnsCacheConfig,
                filters::{
                    http::dynamic_forward_proxy::v3::{FilterConfig, filter_config::ImplementationSpecifier},
                    network::{
                        http_connection_manager::v3::HttpFilter,
                        sni_dynamic_forward_proxy::v3::{
                            FilterConfig as SniFilterConfig, filter_config::PortSpecifier,
                        },
                    },
                },
                network::dns_resolver::cares::v3::CaresDnsResolverConfig,
            },
        },
        mesh::mesh_config::outbound_traffic_policy::Mode,
        to_any,
    },
};

/// The name of the network filter that resolves server names, as Istio writes it.
pub const SNI_FILTER: &str = "envoy.extensions.filters.network.sni_dynamic_forward_proxy";

/// Whether unknown hosts are resolved by the proxy.
#[must_use]
pub fn allow_any(builder: &Builder) -> bool {
    builder.outbound_mode() == Mode::AllowAnyDynamicDns
}

/// The name of the DNS cache of a wildcard host.
#[must_use]
pub fn cache_name(host: &str) -> String {
    format!("{host}_dfp_dns_cache")
}

/// The families that a proxy resolves names to (Istio's `SelectDNSLookupFamily`).
#[must_use]
pub fn lookup_family(builder: &Builder) -> DnsLookupFamily {
    let features = builder.features();
    match (builder.view.ipv4, builder.view.ipv6) {
        (false, true) if features.istio_enable_ipv4_outbound_listener_for_ipv6_clusters => DnsLookupFamily::All,
        (false, true) => DnsLookupFamily::V6Only,
        (true, true) if features.istio_dual_stack => DnsLookupFamily::All,
        _ => DnsLookupFamily::V4Only,
    }
}

/// The HTTP filter of a wildcard service.
#[must_use]
pub fn http_filter_for(builder: &Builder, host: &str) -> HttpFilter {
    forward_proxy(DnsCacheConfig {
        name: cache_name(host),
        dns_lookup_family: lookup_family(builder).into(),
        ..Default::default()
    })
}

/// The network filter that resolves the SNI of a wildcard service.
#[must_use]
pub fn sni_filter(builder: &Builder, host: &str, port: u32) -> Filter {
    let config = SniFilterConfig {
        dns_cache_config: Some(DnsCacheConfig {
            name: cache_name(host),
            dns_lookup_family: lookup_family(builder).into(),
            ..Default::default()
        }),
        port_specifier: Some(PortSpecifier::PortValue(port)),
        ..Default::default()
    };
    network_filter(SNI_FILTER, &config)
}

/// The HTTP filter of the policy `ALLOW_ANY_DYNAMIC_DNS`.
#[must_use]
pub fn allow_any_http_filter(builder: &Builder) -> HttpFilter {
    forward_proxy(allow_any_cache(builder))
}

fn forward_proxy(cache: DnsCacheConfig) -> HttpFilter {
    let config = FilterConfig {
        implementation_specifier: Some(ImplementationSpecifier::DnsCacheConfig(cache)),
        ..Default::default()
    };
    http_filter("envoy.filters.http.dynamic_forward_proxy", &config)
}

fn allow_any_cache(builder: &Builder) -> DnsCacheConfig {
    let metadata = &builder.view.metadata;
    let resolver = metadata.dns_capture.then(|| {
        let (host, port) = dns_proxy(metadata.other("DNS_PROXY_ADDR"));
        let config = CaresDnsResolverConfig { resolvers: vec![address(&host, port)], ..Default::default() };
        TypedExtensionConfig {
            name: "envoy.network.dns_resolver.cares".to_string(),
            typed_config: Some(to_any(&config)),
        }
    });
    DnsCacheConfig {
        name: "allow_any_dfp_dns_cache".to_string(),
        dns_lookup_family: lookup_family(builder).into(),
        max_hosts: Some(builder.features().allow_any_dynamic_dns_max_hosts),
        typed_dns_resolver_config: resolver,
        ..Default::default()
    }
}

/// Where the agent's DNS proxy listens: metadata `DNS_PROXY_ADDR`, else `127.0.0.1:15053`.
fn dns_proxy(given: &str) -> (String, u32) {
    let (host, port) = given.rsplit_once(':').unwrap_or(("127.0.0.1", "15053"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if is_ip(host) { host } else { "127.0.0.1" };
    (host.to_string(), port.parse().unwrap_or(15053))
}
