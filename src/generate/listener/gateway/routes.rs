//! Chains of TCP servers: opaque bytes, TLS that ends here, and TLS that is passed through by SNI, with the destinations of
//! VirtualServices bound to the server's Gateway.

use std::{collections::HashSet, sync::Arc};

use super::{auto_passthrough, chain::Chain, http::usable_ciphers};
use crate::{
    generate::{
        listener::{
            builder::Builder,
            tcp,
            tls_context::{self, Transport},
        },
        proxy_config::ListenerClass,
    },
    model::{Config, Port, host},
    proto::{
        envoy::config::listener::v3::Filter,
        networking::{RouteDestination, VirtualService, server_tls_settings::TlSmode},
    },
    push::gateways::GatewayServer,
};

/// Names the kind of the route that a VirtualService was made from.
const PARENTS: &str = "internal.istio.io/parents";

/// The chain of a server whose bytes are opaque once TLS, if any, has ended. A server without a route has none.
pub(super) fn tcp(builder: &Builder, server: &GatewayServer) -> Option<Chain> {
    let filters = bound(builder, server).find_map(|config| tcp_filters(builder, server, &config))?;
    let tls = server.spec.tls.as_ref();
    let transport = if server.is_tcp_termination() { Transport::TerminatedTcp } else { Transport::Tcp };
    (!filters.is_empty()).then(|| Chain {
        sni: server.sni_hosts.clone(),
        tls: tls.map(|t| tls_context::server(builder, &usable_ciphers(t), transport)),
        filters,
        origin: format!("gateway {} port {}", server.gateway, server.port.name),
        ..Chain::default()
    })
}

/// The filters of the first route of a VirtualService that is for this server.
fn tcp_filters(builder: &Builder, server: &GatewayServer, config: &Config) -> Option<Vec<Filter>> {
    let spec = config.virtual_service()?;
    for route in spec.tcp.iter().filter(|r| !r.route.is_empty()) {
        let matches = |m: &crate::proto::networking::L4MatchAttributes| is_for(server, m.port, &m.gateways);
        if route.r#match.is_empty() || route.r#match.iter().any(matches) {
            return Some(filters(builder, server, config, &route.route));
        }
    }
    // A TLSRoute of the Gateway API whose listener ends TLS is written as TLS routes all the same.
    if !config.meta.annotations.get(PARENTS).is_some_and(|p| p.starts_with("TLSRoute/")) {
        return None;
    }
    let route = spec.tls.iter().find(|r| r.r#match.iter().any(|m| is_for(server, m.port, &m.gateways)))?;
    Some(filters(builder, server, config, &route.route))
}

fn filters(builder: &Builder, server: &GatewayServer, config: &Config, routes: &[RouteDestination]) -> Vec<Filter> {
    let exchange = server.tls_mode() == Some(TlSmode::IstioMutual);
    tcp::outbound_routes(builder, ListenerClass::Gateway, routes, &port(server), config, exchange)
}

/// The chains of a server that passes TLS through: one for each SNI match of a VirtualService, or for AUTO_PASSTHROUGH one
/// for each cluster.
pub(super) fn passthrough(
    builder: &Builder,
    server: &GatewayServer,
    taken: &mut HashSet<String>,
    conflicts: &mut Vec<String>,
) -> Vec<Chain> {
    if server.tls_mode() == Some(TlSmode::AutoPassthrough) {
        return auto_passthrough::chains(builder, server);
    }
    let mut chains = Vec::new();
    for config in bound(builder, server) {
        let Some(spec) = config.virtual_service() else { continue };
        let rules = spec.tls.iter().filter(|r| !r.route.is_empty());
        let matches = rules.flat_map(|r| r.r#match.iter().map(move |m| (r, m)));
        for (rule, matched) in matches.filter(|(_, m)| is_for(server, m.port, &m.gateways)) {
            let origin = format!("VirtualService {}/{}", config.meta.namespace, config.meta.name);
            if let Some(name) = matched.sni_hosts.iter().find(|n| taken.contains(*n)) {
                let (gateway, port) = (&server.gateway, server.port.number);
                conflicts.push(format!(
                    "{origin}: a TLS match for {} on gateway {gateway} port {port} is left out: {name} is taken already",
                    matched.sni_hosts.join(", "),
                ));
                continue;
            }
            taken.extend(matched.sni_hosts.iter().cloned());
            let port = port(server);
            let class = ListenerClass::Gateway;
            let filters = tcp::outbound_routes(builder, class, &rule.route, &port, &config, false);
            if !filters.is_empty() {
                chains.push(Chain { sni: matched.sni_hosts.clone(), filters, origin, ..Chain::default() });
            }
        }
    }
    chains
}

/// The VirtualServices of the server's Gateway that share a host with the server, oldest first.
fn bound<'a>(builder: &'a Builder, server: &'a GatewayServer) -> impl Iterator<Item = Arc<Config>> + 'a {
    let all = builder.context.virtual_services.for_gateway(builder.view, &server.gateway);
    all.into_iter().filter(|c| c.virtual_service().is_some_and(|s| shares_host(server, s, &c.meta.namespace)))
}

fn shares_host(server: &GatewayServer, spec: &VirtualService, namespace: &str) -> bool {
    server.spec.hosts.iter().any(|server_host| {
        let name = match server_host.split_once('/') {
            Some((own, name)) if own == namespace => name,
            Some(_) => return false,
            None => server_host,
        };
        spec.hosts.iter().any(|h| host::matches(name, h))
    })
}

/// Whether a match may be for this server, as far as port and gateways tell.
fn is_for(server: &GatewayServer, port: u32, gateways: &[String]) -> bool {
    (port == 0 || port == server.port.number)
        && (gateways.is_empty() || gateways.iter().any(|g| **g == *server.gateway))
}

fn port(server: &GatewayServer) -> Port {
    Port { name: server.port.name.as_str().into(), port: server.port.number, protocol: server.protocol }
}
