//! One filter chain of a gateway's listener, and keeping chains of one listener distinct.

use std::collections::HashSet;

use crate::{
    generate::listener::tls_context,
    proto::{
        envoy::{
            config::{
                core::v3::{TransportSocket, transport_socket::ConfigType},
                listener::v3::{Filter, FilterChain, FilterChainMatch},
            },
            extensions::transport_sockets::{quic::v3::QuicDownstreamTransport, tls::v3::DownstreamTlsContext},
        },
        to_any, wkt,
    },
};

/// A filter chain.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// Server names; none, or `*` among them, matches every name.
    pub sni: Vec<String>,
    /// Application protocols that the chain is for; empty for all.
    pub alpn: Vec<String>,
    /// TLS ends here.
    pub tls: Option<DownstreamTlsContext>,
    /// Network filters, the last of which takes the connection.
    pub filters: Vec<Filter>,
    /// Its origin, for messages.
    pub origin: String,
}

impl Chain {
    /// Whether the listener has to look at the TLS hello for this chain.
    pub fn needs_tls_inspector(&self) -> bool {
        let terminates = self.tls.as_ref().and_then(|t| t.common_tls_context.as_ref());
        !self.sni.is_empty() || terminates.is_some_and(|c| !c.alpn_protocols.is_empty())
    }

    /// Names that are matched; empty for all.
    fn names(&self) -> &[String] {
        if self.sni.iter().any(|n| n == "*") { &[] } else { &self.sni }
    }

    fn chain_match(&self) -> Option<FilterChainMatch> {
        if self.names().is_empty() && self.alpn.is_empty() {
            return None;
        }
        let mut server_names = self.names().to_vec();
        server_names.sort_unstable();
        Some(FilterChainMatch { server_names, application_protocols: self.alpn.clone(), ..Default::default() })
    }

    /// The chain as Envoy has it.
    pub fn into_filter_chain(self, quic: bool, handshake_timeout: Option<wkt::Duration>) -> FilterChain {
        FilterChain {
            filter_chain_match: self.chain_match(),
            transport_socket: self.tls.map(|t| if quic { quic_socket(t) } else { tls_context::transport_socket(&t) }),
            transport_socket_connect_timeout: handshake_timeout,
            filters: self.filters,
            ..Default::default()
        }
    }
}

fn quic_socket(context: DownstreamTlsContext) -> TransportSocket {
    let config = QuicDownstreamTransport { downstream_tls_context: Some(context), ..Default::default() };
    TransportSocket {
        name: "envoy.transport_sockets.quic".to_string(),
        config_type: Some(ConfigType::TypedConfig(to_any(&config))),
    }
}

/// Takes from later chains the names that an earlier one matches for the same application protocols; a chain that matches
/// nothing any more is left out. The first chain of a name is the oldest.
pub(super) fn distinct(chains: Vec<Chain>, listener: &str, conflicts: &mut Vec<String>) -> Vec<Chain> {
    let mut taken: HashSet<(String, String)> = HashSet::new();
    let mut kept = Vec::with_capacity(chains.len());
    for mut chain in chains {
        let alpn: Vec<String> = if chain.alpn.is_empty() { vec![String::new()] } else { chain.alpn.clone() };
        let is_taken = |taken: &HashSet<_>, name: &str| {
            alpn.iter().any(|a| taken.contains(&(name.to_ascii_lowercase(), a.clone())))
        };
        if chain.names().is_empty() {
            if is_taken(&taken, "") {
                conflicts
                    .push(format!("listener {listener}: {} is left out: another one takes every name", chain.origin));
                continue;
            }
            taken.extend(alpn.iter().map(|a| (String::new(), a.clone())));
        } else {
            let (duplicate, own): (Vec<_>, Vec<_>) = chain.sni.into_iter().partition(|n| is_taken(&taken, n));
            if !duplicate.is_empty() {
                let names = duplicate.join(", ");
                conflicts.push(format!(
                    "listener {listener}: {names} of {} is left out: it is served already",
                    chain.origin
                ));
            }
            if own.is_empty() {
                continue;
            }
            taken.extend(own.iter().flat_map(|n| alpn.iter().map(|a| (n.to_ascii_lowercase(), a.clone()))));
            chain.sni = own;
        }
        kept.push(chain);
    }
    kept
}
