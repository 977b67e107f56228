//! Listeners of a gateway (Istio's `buildGatewayListeners`): one per bound port and address, with a filter chain for
//! plaintext HTTP, for each HTTPS server, for each TCP server with a route, and for each SNI match of passed-through TLS.
//!
//! Envoy refuses a whole listener in which two chains match the same; here the later chain (or only its duplicate names) is
//! left out and named in [`GatewayListeners::conflicts`].

mod auto_passthrough;
mod chain;
mod http;
mod routes;
mod socket;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;

use self::{chain::Chain, socket::Socket};
use super::builder::Builder;
use crate::{
    generate::check::Refusal,
    model::Protocol,
    proto::envoy::config::listener::v3::Listener,
    push::{
        MergedGateway, ProxyView, PushContext,
        gateways::{GatewayServer, MergedServers, ServerPort},
    },
};

/// The listeners of a gateway, and the conflicts between its servers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GatewayListeners {
    /// In the order of the ports; over QUIC behind over TCP.
    pub listeners: Vec<Listener>,
    /// The omissions and their reasons, as texts for people; the conflicts of merging come first.
    pub conflicts: Vec<String>,
    /// Policies in whose place every request is refused.
    pub refused: Vec<Refusal>,
}

/// LDS of a gateway; nothing when no Gateway selects it.
#[must_use]
pub fn gateway(context: &PushContext, view: &ProxyView) -> Vec<Listener> {
    gateway_with_conflicts(context, view).listeners
}

/// LDS of a gateway, with a list of the omissions.
#[must_use]
pub fn gateway_with_conflicts(context: &PushContext, view: &ProxyView) -> GatewayListeners {
    let Some(merged) = context.merged_gateway(view) else { return GatewayListeners::default() };
    let builder = Builder::new(context, view);
    let mut build = Build {
        builder: &builder,
        taken_sni: HashMap::new(),
        open: IndexMap::new(),
        conflicts: merged.conflicts.clone(),
    };
    for port in &merged.server_ports {
        build.port(&merged, port);
    }
    build.finish()
}

/// The listeners of one gateway while they are built.
struct Build<'a> {
    builder: &'a Builder<'a>,
    /// SNI names of passed-through TLS by port and address.
    taken_sni: HashMap<(u32, String), HashSet<String>>,
    open: IndexMap<String, (Socket<'a>, Vec<Chain>)>,
    conflicts: Vec<String>,
}

impl<'a> Build<'a> {
    fn port(&mut self, merged: &'a MergedGateway, port: &'a ServerPort) {
        // Ports of Services are target ports by now, so that only ports that cannot be bound are left out.
        if self.builder.view.metadata.unprivileged_pod && port.number < 1024 {
            self.conflicts.push(format!("port {} is left out: the pod may not bind ports below 1024", port.number));
            return;
        }
        if let Some(servers) = merged.servers.get(port) {
            let socket = Socket::new(self.builder, port, false);
            let chains = self.tcp_chains(port, servers, &socket);
            self.open.entry(socket.name()).or_insert_with(|| (socket, Vec::new())).1.extend(chains);
        }
        if let Some(servers) = merged.quic_servers.get(port) {
            let socket = Socket::new(self.builder, port, true);
            let chains: Vec<_> = servers.servers.iter().map(|s| http::terminated(self.builder, s, &socket)).collect();
            self.open.entry(socket.name()).or_insert_with(|| (socket, Vec::new())).1.extend(chains);
        }
    }

    fn tcp_chains(&mut self, port: &ServerPort, servers: &MergedServers, socket: &Socket) -> Vec<Chain> {
        let protocol = Protocol::parse(&port.protocol);
        if protocol.is_http() {
            return vec![http::plain_text(self.builder, protocol, &servers.route_name, socket)];
        }
        servers.servers.iter().flat_map(|server| self.server_chains(server, port.number, socket)).collect()
    }

    fn server_chains(&mut self, server: &GatewayServer, bound: u32, socket: &Socket) -> Vec<Chain> {
        if server.is_https_termination() {
            return vec![http::terminated(self.builder, server, socket)];
        }
        if !server.is_passthrough() {
            return routes::tcp(self.builder, server).into_iter().collect();
        }
        let taken = self.taken_sni.entry((bound, server.spec.bind.clone())).or_default();
        routes::passthrough(self.builder, server, taken, &mut self.conflicts)
    }

    fn finish(self) -> GatewayListeners {
        let Self { builder, open, mut conflicts, .. } = self;
        let mut listeners = Vec::with_capacity(open.len());
        for (name, (socket, chains)) in open {
            let chains = chain::distinct(chains, &name, &mut conflicts);
            if !chains.is_empty() {
                listeners.push(socket.listener(builder, chains));
            }
        }
        GatewayListeners { listeners, conflicts, refused: builder.refused() }
    }
}
