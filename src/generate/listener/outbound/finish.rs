//! From a draft to a listener: inspectors, chains, and the chain for all other traffic (Istio's `buildListenerFromEntry`).

use super::{Binding, entries::ListenerDraft};
use crate::{
    generate::{
        listener::{
            bind::{accepts_per_event, additional, address, balance, listener_name},
            builder::Builder,
            dynamic_dns::SNI_FILTER,
            filter_chain::Chain,
            hcm,
            http_options::{HttpOptions, Routes},
            listener_filters::{http_inspector, tls_inspector},
            tls_context,
        },
        proxy_config::ListenerClass,
    },
    model::{Port, Protocol},
    proto::{
        envoy::config::{
            core::v3::TrafficDirection,
            listener::v3::{Filter, FilterChain, FilterChainMatch, Listener},
        },
        seconds, wkt,
    },
};

/// The chain of a listener for the traffic that matches no other chain.
const FALLTHROUGH_CHAIN: &str = "PassthroughFilterChain";

/// Finishes one listener. `fallthrough` are the filters for traffic that no chain takes.
#[must_use]
pub fn listener(builder: &Builder, entry: ListenerDraft, fallthrough: Option<&[Filter]>) -> Listener {
    from_parts(builder, &entry.binding, entry.port.port, entry.chains, fallthrough)
}

fn from_parts(
    builder: &Builder,
    binding: &Binding,
    port: u32,
    chains: Vec<Chain>,
    fallthrough: Option<&[Filter]>,
) -> Listener {
    let primary = binding.primary();
    let mut listener = Listener {
        name: listener_name(primary, port),
        address: Some(address(primary, port)),
        additional_addresses: additional(binding.binds.get(1..).unwrap_or_default(), port),
        traffic_direction: TrafficDirection::Outbound.into(),
        continue_on_listener_filters_timeout: true,
        ..Default::default()
    };
    balance(builder, &mut listener, "OUTBOUND_LISTENER_EXACT_BALANCE");
    if binding.bind_to_port {
        listener.max_connections_to_accept_per_socket_event = accepts_per_event(builder);
    } else {
        listener.bind_to_port = Some(false);
    }
    add_inspectors(builder, &mut listener, &chains);
    for chain in chains {
        let matches = chain.to_match();
        let built = build_chain(builder, &listener.name, port, chain);
        match matches {
            None => listener.default_filter_chain = Some(built),
            Some(_) => listener.filter_chains.push(FilterChain { filter_chain_match: matches, ..built }),
        }
    }
    if listener.filter_chains.is_empty() && listener.default_filter_chain.is_some() {
        listener.filter_chains.extend(listener.default_filter_chain.take());
    } else if listener.default_filter_chain.is_none() {
        listener.default_filter_chain = Some(FilterChain {
            filter_chain_match: Some(FilterChainMatch::default()),
            name: FALLTHROUGH_CHAIN.to_string(),
            filters: fallthrough.unwrap_or_default().to_vec(),
            ..Default::default()
        });
    }
    listener
}

fn add_inspectors(builder: &Builder, listener: &mut Listener, chains: &[Chain]) {
    let resolves_sni = |f: &Filter| f.name == SNI_FILTER;
    let offers_alpn = |c: &Chain| {
        let common = c.tls.as_ref().and_then(|t| t.common_tls_context.as_ref());
        common.is_some_and(|t| !t.alpn_protocols.is_empty())
    };
    if chains.iter().any(|c| !c.sni_hosts.is_empty() || offers_alpn(c) || c.filters.iter().any(resolves_sni)) {
        listener.listener_filters.push(tls_inspector());
    }
    if chains.iter().any(|c| !c.application_protocols.is_empty()) {
        listener.listener_filters.push(http_inspector());
        listener.listener_filters_timeout = builder.mesh().protocol_detection_timeout;
    } else {
        listener.listener_filters_timeout = Some(seconds(0));
    }
}

fn build_chain(builder: &Builder, listener: &str, port: u32, chain: Chain) -> FilterChain {
    let mut filters = chain.filters;
    if let Some(mut options) = chain.http {
        options.stat_prefix = hcm::delimited(&format!("outbound_{listener}"));
        options.port = port;
        filters.extend(builder.extensions().before_http(options.class, port));
        filters.push(hcm::filter(&hcm::build(builder, options)));
    }
    FilterChain {
        metadata: chain.metadata,
        transport_socket: chain.tls.as_ref().map(tls_context::transport_socket),
        transport_socket_connect_timeout: connect_timeout(builder),
        filters,
        ..Default::default()
    }
}

/// The time limit of a TLS handshake; `None` for no limit.
fn connect_timeout(builder: &Builder) -> Option<wkt::Duration> {
    let timeout = builder.features().gateway_transport_socket_connect_timeout;
    (!timeout.is_zero()).then(|| wkt::Duration::try_from(timeout).ok()).flatten()
}

/// The listener for clients that use the sidecar as an HTTP proxy, on `proxyHttpPort` of the mesh or of the node's metadata.
#[must_use]
pub fn http_proxy(builder: &Builder) -> Option<Listener> {
    let of_node = builder.view.metadata.other("HTTP_PROXY_PORT").parse().ok();
    let port = of_node.or_else(|| u32::try_from(builder.mesh().proxy_http_port).ok()).filter(|p| *p != 0)?;
    let routes = Routes::Rds("http_proxy".to_string());
    let mut options = HttpOptions::new(builder, ListenerClass::SidecarOutbound, Protocol::HttpProxy, routes);
    options.manager.http_protocol_options.get_or_insert_default().allow_absolute_url = Some(true);
    options.skip_mx_headers = false;
    let binding =
        Binding { binds: builder.localhosts().iter().map(|l| (*l).to_string()).collect(), bind_to_port: true };
    let chain = Chain { http: Some(options), ..Default::default() };
    let port = Port { port, ..Default::default() };
    Some(from_parts(builder, &binding, port.port, vec![chain], None))
}
