//! A filter chain while it is being put together: its match, its TLS context and its filters, before conflicts between
//! chains of one listener are settled (Istio's `filterChainOpts`).

use std::{collections::BTreeSet, net::IpAddr};

use super::http_options::HttpOptions;
use crate::{
    generate::names::{cidr_range, parse_prefix},
    proto::envoy::{
        config::{
            core::v3::Metadata,
            listener::v3::{Filter, FilterChainMatch},
        },
        extensions::transport_sockets::tls::v3::DownstreamTlsContext,
    },
};

/// One chain.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    /// Server names; `*` anywhere means every name.
    pub sni_hosts: Vec<String>,
    /// Destination addresses, with or without `/bits`.
    pub destination_cidrs: Vec<String>,
    /// Application protocols that an inspector found.
    pub application_protocols: Vec<String>,
    /// Transport protocol that an inspector found; empty is any.
    pub transport_protocol: String,
    /// The object that the chain comes from.
    pub metadata: Option<Metadata>,
    /// TLS that ends here.
    pub tls: Option<DownstreamTlsContext>,
    /// Options of the connection manager, if the chain is for HTTP.
    pub http: Option<HttpOptions>,
    /// Network filters: before the connection manager, or all of them.
    pub filters: Vec<Filter>,
}

impl Chain {
    /// Whether the chain takes every connection.
    #[must_use]
    pub fn is_match_all(&self) -> bool {
        (self.sni_hosts.is_empty() || self.sni_hosts.iter().any(|h| h == "*"))
            && self.application_protocols.is_empty()
            && self.transport_protocol.is_empty()
            && self.destination_cidrs.is_empty()
    }

    /// The match; `None` for a chain that takes everything.
    #[must_use]
    pub fn to_match(&self) -> Option<FilterChainMatch> {
        if self.is_match_all() {
            return None;
        }
        let mut server_names =
            if self.sni_hosts.iter().any(|h| h == "*") { Vec::new() } else { self.sni_hosts.clone() };
        server_names.sort();
        let mut cidrs = self.destination_cidrs.clone();
        cidrs.sort();
        Some(FilterChainMatch {
            application_protocols: self.application_protocols.clone(),
            transport_protocol: self.transport_protocol.clone(),
            server_names,
            prefix_ranges: cidrs
                .iter()
                .filter_map(|c| cidr_range(c))
                .filter(|range| range.address_prefix != "0.0.0.0")
                .collect(),
            ..Default::default()
        })
    }

    /// Whether Envoy would see two equal matches, which it refuses. Order and host bits do not count.
    #[must_use]
    pub fn conflicts_with(&self, other: &Self) -> bool {
        self.transport_protocol == other.transport_protocol
            && self.application_protocols == other.application_protocols
            && self.sni_set() == other.sni_set()
            && self.prefix_set() == other.prefix_set()
    }

    fn sni_set(&self) -> BTreeSet<&str> {
        self.sni_hosts.iter().map(String::as_str).filter(|h| *h != "*").collect()
    }

    fn prefix_set(&self) -> BTreeSet<(IpAddr, u8)> {
        let unspecified = IpAddr::from([0, 0, 0, 0]);
        self.destination_cidrs
            .iter()
            .filter_map(|c| parse_prefix(c))
            .filter(|(ip, _)| *ip != unspecified)
            .filter_map(|(ip, bits)| Some((ipnet::IpNet::new(ip, bits).ok()?.trunc().addr(), bits)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(sni: &[&str], cidrs: &[&str]) -> Chain {
        let owned = |texts: &[&str]| texts.iter().map(|t| (*t).to_string()).collect();
        Chain { sni_hosts: owned(sni), destination_cidrs: owned(cidrs), ..Default::default() }
    }

    #[test]
    fn equal_matches_conflict_in_any_order_and_with_any_host_bits() {
        assert!(chain(&["a", "b"], &["10.1.2.3/8"]).conflicts_with(&chain(&["b", "a"], &["10.9.9.9/8"])));
        assert!(!chain(&["a"], &["10.1.2.3/8"]).conflicts_with(&chain(&["a"], &["10.1.2.3/16"])));
        assert!(chain(&["*"], &["0.0.0.0"]).conflicts_with(&chain(&[], &[])));
        assert!(!chain(&["a"], &[]).conflicts_with(&chain(&[], &[])));
    }

    #[test]
    fn a_wildcard_server_name_matches_all() {
        assert!(chain(&["*", "a"], &[]).to_match().is_none());
        let found = chain(&["*"], &["10.0.0.0/8", "0.0.0.0"]).to_match().unwrap();
        assert!(found.server_names.is_empty());
        assert_eq!(found.prefix_ranges.len(), 1);
    }
}
