//! Listener filters, filter chain matching, and the TLS check of a chain.

use std::net::IpAddr;

use ipnet::IpNet;
use prost::{Message, Name};

use super::{Call, CallProtocol, CallTls};
use crate::proto::{
    envoy::config::core::v3::transport_socket::ConfigType as SocketConfig,
    envoy::{
        config::{
            core::v3::{CidrRange, address::Address, socket_address::PortSpecifier},
            listener::v3::{
                FilterChain, FilterChainMatch, Listener, ListenerFilterChainMatchPredicate, filter::ConfigType,
                listener_filter_chain_match_predicate::Rule,
            },
        },
        extensions::{
            filters::network::{http_connection_manager::v3::HttpConnectionManager, tcp_proxy::v3::TcpProxy},
            transport_sockets::tls::v3::DownstreamTlsContext,
        },
    },
};

/// Whether the listener's primary address is this IP and port.
pub(super) fn is_at(listener: &Listener, ip: &str, port: u32) -> bool {
    let Some(Address::SocketAddress(address)) = listener.address.as_ref().and_then(|a| a.address.as_ref()) else {
        return false;
    };
    address.address == ip && address.port_specifier == Some(PortSpecifier::PortValue(port))
}

/// Properties of a connection that the listener filters detect.
pub(super) struct Inspected {
    tls: bool,
    alpn: String,
}

impl Inspected {
    pub(super) fn of(listener: &Listener, call: &Call) -> Self {
        let active = |name: &str| {
            listener
                .listener_filters
                .iter()
                .any(|f| f.name == name && !f.filter_disabled.as_ref().is_some_and(|p| predicate_holds(p, call.port)))
        };
        let tls = active("envoy.filters.listener.tls_inspector");
        let mut alpn = if tls { call.alpn.clone() } else { String::new() };
        if call.tls == CallTls::Plaintext && active("envoy.filters.listener.http_inspector") {
            match call.protocol {
                CallProtocol::Http => alpn = "http/1.1".to_string(),
                CallProtocol::Http2 => alpn = "h2c".to_string(),
                CallProtocol::Tcp => {}
            }
        }
        Self { tls, alpn }
    }
}

fn predicate_holds(predicate: &ListenerFilterChainMatchPredicate, port: u32) -> bool {
    match &predicate.rule {
        Some(Rule::NotMatch(inner)) => !predicate_holds(inner, port),
        Some(Rule::OrMatch(set)) => set.rules.iter().any(|r| predicate_holds(r, port)),
        Some(Rule::AndMatch(set)) => set.rules.iter().all(|r| predicate_holds(r, port)),
        Some(Rule::DestinationPortRange(range)) => {
            i64::from(range.start) <= i64::from(port) && i64::from(port) < i64::from(range.end)
        }
        Some(Rule::AnyMatch(_)) | None => true,
    }
}

/// The chain that takes the call. Each criterion narrows the list: the chains with the highest positive rank stay, or, when
/// none has one, the chains that leave the criterion unset. Source criteria are ignored.
pub(super) fn filter_chain<'a>(
    listener: &'a Listener,
    call: &Call,
    inspected: &Inspected,
) -> Result<&'a FilterChain, &'static str> {
    let empty = FilterChainMatch::default();
    let of = |c: &'a FilterChain| -> FilterChainMatch { c.filter_chain_match.clone().unwrap_or_else(|| empty.clone()) };
    let mut chains: Vec<(&FilterChain, FilterChainMatch)> = listener.filter_chains.iter().map(|c| (c, of(c))).collect();

    narrow(&mut chains, |m| m.destination_port.is_some(), |m| usize::from(m.destination_port == Some(call.port)));
    narrow(&mut chains, |m| !m.prefix_ranges.is_empty(), |m| longest_prefix(&m.prefix_ranges, &call.address));
    narrow(&mut chains, |m| !m.server_names.is_empty(), |m| server_name_rank(&m.server_names, &call.sni));
    let transport = if inspected.tls && call.tls != CallTls::Plaintext { "tls" } else { "raw_buffer" };
    narrow(&mut chains, |m| !m.transport_protocol.is_empty(), |m| usize::from(m.transport_protocol == transport));
    narrow(
        &mut chains,
        |m| !m.application_protocols.is_empty(),
        |m| usize::from(m.application_protocols.contains(&inspected.alpn)),
    );
    match chains.as_slice() {
        [] => listener.default_filter_chain.as_ref().ok_or("no filter chains matched"),
        [(chain, _)] => Ok(chain),
        _ => Err("multiple filter chains matched"),
    }
}

fn narrow<C>(
    chains: &mut Vec<(C, FilterChainMatch)>,
    is_set: impl Fn(&FilterChainMatch) -> bool,
    rank: impl Fn(&FilterChainMatch) -> usize,
) {
    if !chains.iter().any(|(_, m)| is_set(m)) {
        return;
    }
    let ranked = |m: &FilterChainMatch| if is_set(m) { rank(m) } else { 0 };
    let best = chains.iter().map(|(_, m)| ranked(m)).max().unwrap_or(0);
    if best > 0 {
        chains.retain(|(_, m)| ranked(m) == best);
    } else {
        chains.retain(|(_, m)| !is_set(m));
    }
}

/// Length of the longest prefix that contains the address. A `/0` ranks 0, as in the recordings.
fn longest_prefix(ranges: &[CidrRange], address: &str) -> usize {
    let Ok(ip) = address.parse::<IpAddr>() else { return 0 };
    ranges
        .iter()
        .filter_map(|r| {
            let length = u8::try_from(r.prefix_len.unwrap_or_default()).ok()?;
            let net = IpNet::new(r.address_prefix.parse().ok()?, length).ok()?;
            net.contains(&ip).then_some(usize::from(length))
        })
        .max()
        .unwrap_or(0)
}

fn server_name_rank(names: &[String], sni: &str) -> usize {
    names
        .iter()
        .map(|name| {
            if name == sni {
                usize::MAX
            } else if name.strip_prefix('*').is_some_and(|suffix| sni.trim_start_matches('*').ends_with(suffix)) {
                name.len()
            } else {
                0
            }
        })
        .max()
        .unwrap_or(0)
}

/// A chain with a transport socket needs TLS; one that requires client certificates with the mesh's own secret needs mutual
/// TLS and only that.
pub(super) fn check_tls(chain: &FilterChain, call: &Call) -> Result<(), &'static str> {
    let Some(socket) = &chain.transport_socket else { return Ok(()) };
    if call.tls == CallTls::Plaintext {
        return Err("invalid TLS");
    }
    let secret = if call.mtls_secret.is_empty() { "default" } else { &call.mtls_secret };
    let context = downstream(socket.config_type.as_ref());
    let name = context.as_ref().and_then(first_secret).unwrap_or_default();
    let asks = context.as_ref().is_some_and(|c| c.require_client_certificate == Some(true));
    let needs_mtls = name == secret && asks;
    if needs_mtls != (call.tls == CallTls::Mtls) { Err("invalid mTLS") } else { Ok(()) }
}

fn downstream(config: Option<&SocketConfig>) -> Option<DownstreamTlsContext> {
    let SocketConfig::TypedConfig(any) = config?;
    (any.type_url == DownstreamTlsContext::type_url()).then_some(())?;
    DownstreamTlsContext::decode(any.value.as_slice()).ok()
}

fn first_secret(context: &DownstreamTlsContext) -> Option<String> {
    Some(context.common_tls_context.as_ref()?.tls_certificate_sds_secret_configs.first()?.name.clone())
}

/// The chain's HTTP connection manager.
pub(super) fn http_connection_manager(chain: &FilterChain) -> Option<HttpConnectionManager> {
    network_filter(chain)
}

/// The chain's TCP proxy.
pub(super) fn tcp_proxy(chain: &FilterChain) -> Option<TcpProxy> {
    network_filter(chain)
}

fn network_filter<M: Message + Name + Default>(chain: &FilterChain) -> Option<M> {
    chain.filters.iter().find_map(|f| match &f.config_type {
        Some(ConfigType::TypedConfig(any)) if any.type_url == M::type_url() => M::decode(any.value.as_slice()).ok(),
        _ => None,
    })
}
