//! Listener filters: original destination and source, and the inspectors that detect the protocol of the first bytes, only on the
//! ports that need them (Istio's `populateListenerFilters`).

use std::collections::BTreeMap;

use prost::Name;

use super::builder::Builder;
use crate::{
    model::node::InterceptionMode,
    proto::{
        envoy::{
            config::listener::v3::{
                FilterChain, ListenerFilter, ListenerFilterChainMatchPredicate, listener_filter,
                listener_filter_chain_match_predicate::{MatchSet, Rule},
            },
            extensions::filters::listener::{
                http_inspector::v3::HttpInspector, original_dst::v3::OriginalDst, original_src::v3::OriginalSrc,
                proxy_protocol::v3::ProxyProtocol, tls_inspector::v3::TlsInspector,
            },
            r#type::v3::Int32Range,
        },
        to_any,
    },
};

fn filter<M: Name>(name: &str, config: &M) -> ListenerFilter {
    ListenerFilter {
        name: format!("envoy.filters.listener.{name}"),
        config_type: Some(listener_filter::ConfigType::TypedConfig(to_any(config))),
        ..Default::default()
    }
}

/// Finds TLS, its server name and its ALPN.
#[must_use]
pub fn tls_inspector() -> ListenerFilter {
    filter("tls_inspector", &TlsInspector { initial_read_buffer_size: Some(512), ..Default::default() })
}

/// Finds HTTP and its version.
#[must_use]
pub fn http_inspector() -> ListenerFilter {
    filter("http_inspector", &HttpInspector {})
}

/// The address that redirected traffic was sent to.
#[must_use]
pub fn original_destination() -> ListenerFilter {
    filter("original_dst", &OriginalDst {})
}

/// Takes the PROXY protocol's header off.
#[must_use]
pub fn proxy_protocol() -> ListenerFilter {
    filter("proxy_protocol", &ProxyProtocol::default())
}

/// The inspectors that a port needs.
#[derive(Debug, Clone, Copy, Default)]
struct Needs {
    tls: bool,
    http: bool,
}

/// The filters of an inbound listener with these chains.
#[must_use]
pub fn inbound(builder: &Builder, chains: &[FilterChain], bind_to_port: bool) -> Vec<ListenerFilter> {
    let mut filters = Vec::new();
    if !bind_to_port {
        filters.push(original_destination());
        if builder.view.metadata.interception_mode == InterceptionMode::Tproxy {
            filters.push(filter("original_src", &OriginalSrc { mark: 1337, ..Default::default() }));
        }
    }
    // Port 0 stands for the chains that take any port.
    let mut ports: BTreeMap<u32, Needs> = BTreeMap::new();
    for chain in chains {
        let found = chain.filter_chain_match.as_ref();
        let needs = ports.entry(found.and_then(|m| m.destination_port).unwrap_or(0)).or_default();
        needs.tls |= found.is_some_and(|m| m.transport_protocol == "tls");
        let http = |m: &str| m == "http/1.1" || m == "h2c";
        needs.http |= found.is_some_and(|m| m.application_protocols.iter().any(|p| http(p)));
    }
    if ports.values().any(|n| n.tls) {
        filters.push(ListenerFilter { filter_disabled: tls_disabled(&ports), ..tls_inspector() });
    }
    // After the TLS inspector: a connection that it finds to be TLS is not inspected again.
    if ports.values().any(|n| n.http) {
        let without: Vec<u32> = ports.iter().filter(|(_, n)| !n.http).map(|(p, _)| *p).collect();
        filters.push(ListenerFilter { filter_disabled: any_of(&without), ..http_inspector() });
    }
    filters
}

/// Where TLS is looked for by default, it is switched off for the other ports; else switched on for those that need it.
fn tls_disabled(ports: &BTreeMap<u32, Needs>) -> Option<ListenerFilterChainMatchPredicate> {
    let by_default = ports.get(&0).is_some_and(|n| n.tls);
    let differing: Vec<u32> =
        ports.iter().filter(|(port, n)| **port != 0 && n.tls != by_default).map(|(p, _)| *p).collect();
    let found = any_of(&differing)?;
    if by_default {
        return Some(found);
    }
    Some(ListenerFilterChainMatchPredicate { rule: Some(Rule::NotMatch(Box::new(found))) })
}

fn any_of(ports: &[u32]) -> Option<ListenerFilterChainMatchPredicate> {
    let mut rules: Vec<_> = ports
        .iter()
        .filter_map(|port| {
            let start = i32::try_from(*port).ok()?;
            let range = Int32Range { start, end: start + 1 };
            Some(ListenerFilterChainMatchPredicate { rule: Some(Rule::DestinationPortRange(range)) })
        })
        .collect();
    if rules.len() > 1 {
        return Some(ListenerFilterChainMatchPredicate { rule: Some(Rule::OrMatch(MatchSet { rules })) });
    }
    rules.pop()
}
