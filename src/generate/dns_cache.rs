//! DNS caches of hosts that are resolved per request. The cluster and the filters that use a cache carry its
//! settings both; Envoy shares caches by name and refuses two of one name that differ, so they are made here only.

use std::net::IpAddr;

use super::names;
use crate::{
    model::Features,
    proto::{
        envoy::{
            config::{cluster::v3::cluster::DnsLookupFamily, core::v3::TypedExtensionConfig},
            extensions::{
                common::dynamic_forward_proxy::v3::DnsCacheConfig,
                network::dns_resolver::cares::v3::CaresDnsResolverConfig,
            },
        },
        to_any,
    },
    push::{ProxyView, PushContext},
};

/// Name of the extension that resolves names.
pub const RESOLVER: &str = "envoy.network.dns_resolver.cares";
/// Cache of undeclared hosts, under the policy `ALLOW_ANY_DYNAMIC_DNS`.
const ALLOW_ANY: &str = "allow_any_dfp_dns_cache";

/// The families of addresses that a proxy asks DNS for (Istio's `SelectDNSLookupFamily`).
#[must_use]
pub fn lookup_family(features: &Features, view: &ProxyView) -> DnsLookupFamily {
    match (view.ipv4, view.ipv6) {
        (false, true) if features.istio_enable_ipv4_outbound_listener_for_ipv6_clusters => DnsLookupFamily::All,
        (false, true) => DnsLookupFamily::V6Only,
        (true, true) if features.istio_dual_stack => DnsLookupFamily::All,
        _ => DnsLookupFamily::V4Only,
    }
}

/// The cache of a wildcard host.
#[must_use]
pub fn of_host(host: &str, family: DnsLookupFamily) -> DnsCacheConfig {
    DnsCacheConfig {
        name: format!("{host}_dfp_dns_cache"),
        dns_lookup_family: family.into(),
        ..DnsCacheConfig::default()
    }
}

/// The cache of undeclared hosts. With `DNS_CAPTURE` it queries the agent's DNS proxy, which has the mesh's names.
#[must_use]
pub fn allow_any(context: &PushContext, view: &ProxyView) -> DnsCacheConfig {
    let resolver = view.metadata.dns_capture.then(|| {
        let (host, port) = dns_proxy(view.metadata.other("DNS_PROXY_ADDR"));
        let resolvers = vec![names::address(&host, port)];
        TypedExtensionConfig {
            name: RESOLVER.to_string(),
            typed_config: Some(to_any(&CaresDnsResolverConfig { resolvers, ..CaresDnsResolverConfig::default() })),
        }
    });
    DnsCacheConfig {
        name: ALLOW_ANY.to_string(),
        dns_lookup_family: lookup_family(context.features(), view).into(),
        max_hosts: Some(context.features().allow_any_dynamic_dns_max_hosts),
        typed_dns_resolver_config: resolver,
        ..DnsCacheConfig::default()
    }
}

/// The address of the agent's DNS proxy: metadata `DNS_PROXY_ADDR`, else `127.0.0.1:15053`.
fn dns_proxy(given: &str) -> (String, u32) {
    let (host, port) = given.rsplit_once(':').unwrap_or(("127.0.0.1", "15053"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if host.parse::<IpAddr>().is_ok() { host } else { "127.0.0.1" };
    (host.to_string(), port.parse().ok().filter(|p| *p != 0).unwrap_or(15053))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dns_proxy_has_a_default() {
        assert_eq!(dns_proxy(""), ("127.0.0.1".to_string(), 15053));
        assert_eq!(dns_proxy("localhost:53"), ("127.0.0.1".to_string(), 53));
        assert_eq!(dns_proxy("[::1]:0"), ("::1".to_string(), 15053));
    }
}
