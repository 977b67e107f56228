//! Filters that resolve the host of each request: wildcard services of resolution `DYNAMIC_DNS`, and the outbound policy
//! `ALLOW_ANY_DYNAMIC_DNS`. The DNS cache settings must be those of the clusters behind them: Envoy shares caches by name.

use super::{
    builder::Builder,
    filter::{http_filter, network_filter},
};
use crate::{
    generate::dns_cache,
    proto::{
        envoy::{
            config::listener::v3::Filter,
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
            },
        },
        mesh::mesh_config::outbound_traffic_policy::Mode,
    },
};

/// The name of the network filter that resolves server names, as Istio writes it.
pub const SNI_FILTER: &str = "envoy.extensions.filters.network.sni_dynamic_forward_proxy";

/// Whether unknown hosts are resolved by the proxy.
#[must_use]
pub fn allow_any(builder: &Builder) -> bool {
    builder.outbound_mode() == Mode::AllowAnyDynamicDns
}

/// The HTTP filter of a wildcard service.
#[must_use]
pub fn http_filter_for(builder: &Builder, host: &str) -> HttpFilter {
    forward_proxy(cache_of(builder, host))
}

/// The network filter that resolves the SNI of a wildcard service.
#[must_use]
pub fn sni_filter(builder: &Builder, host: &str, port: u32) -> Filter {
    let config = SniFilterConfig {
        dns_cache_config: Some(cache_of(builder, host)),
        port_specifier: Some(PortSpecifier::PortValue(port)),
        ..Default::default()
    };
    network_filter(SNI_FILTER, &config)
}

/// The HTTP filter of the policy `ALLOW_ANY_DYNAMIC_DNS`.
#[must_use]
pub fn allow_any_http_filter(builder: &Builder) -> HttpFilter {
    forward_proxy(dns_cache::allow_any(builder.context, builder.view))
}

fn cache_of(builder: &Builder, host: &str) -> DnsCacheConfig {
    dns_cache::of_host(host, dns_cache::lookup_family(builder.features(), builder.view))
}

fn forward_proxy(cache: DnsCacheConfig) -> HttpFilter {
    let config = FilterConfig {
        implementation_specifier: Some(ImplementationSpecifier::DnsCacheConfig(cache)),
        ..Default::default()
    };
    http_filter("envoy.filters.http.dynamic_forward_proxy", &config)
}
