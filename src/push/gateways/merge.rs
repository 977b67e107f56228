//! Merging servers by port, with the rules for conflicts (Istio's `mergeGateways`).
//!
//! On one port and address: plaintext HTTP servers merge into one; HTTP and TCP exclude each other, the older Gateway wins;
//! TLS servers share the port and are told apart by SNI, so a host may be there once only.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, btree_map::Entry},
    sync::Arc,
};

use super::{MergedGateway, MergedServers, ServerPort, credentials, select::Selected, server::GatewayServer};
use crate::{
    model::{Features, Protocol},
    proto::networking::server_tls_settings::TlSmode,
};

/// Merges the servers of all Gateways, which come oldest first.
pub(super) fn merge(selected: &[Selected<'_>], features: &Features) -> MergedGateway {
    let mut merge = Merge { quic: features.enable_quic_listeners, ..Merge::default() };
    for gateway in selected {
        let meta = &gateway.config.meta;
        let name: Arc<str> = format!("{}/{}", meta.namespace, meta.name).into();
        for spec in &gateway.gateway.servers {
            let Some(port) = &spec.port else {
                merge.out.conflicts.push(format!("gateway {name}: a server without a port is left out"));
                continue;
            };
            merge.out.gateway_names.insert(name.clone());
            merge.out.credentials.extend(credentials::references(gateway, spec));
            for bound in gateway.resolve_ports(port.number) {
                if let Some(server) = GatewayServer::new(gateway.config, spec, &name, bound) {
                    merge.add(Arc::new(server), bound, gateway.has_udp(port.number));
                }
            }
        }
    }
    merge.finish()
}

#[derive(Default)]
struct Merge {
    out: MergedGateway,
    quic: bool,
    ports: BTreeSet<u32>,
    plain_text: BTreeMap<u32, ServerPort>,
    tls_hosts: HashMap<(u32, String), BTreeSet<String>>,
}

impl Merge {
    fn add(&mut self, server: Arc<GatewayServer>, bound: u32, udp: bool) {
        if server.spec.tls.is_some() {
            if let Some(taken) = self.claim_hosts(&server, bound) {
                return self.refuse(&server, bound, &format!("the port has a TLS server for {taken} already"));
            }
            self.out.contains_auto_passthrough |= server.tls_mode() == Some(TlSmode::AutoPassthrough);
        }
        let port = server.server_port(bound);
        let http3 = self.quic && udp && server.can_be_http3();
        if self.ports.insert(bound) {
            self.open(server.clone(), &port);
            if http3 {
                self.offer_http3(server, port);
            }
            return;
        }
        match self.plain_text.get(&bound).cloned() {
            Some(current) if current.bind == port.bind => self.join_plain_text(server, &port, &current),
            Some(_) => {
                if self.out.servers.contains_key(&port) {
                    self.join(server.clone(), &port);
                } else {
                    self.open(server.clone(), &port);
                }
                if http3 {
                    self.offer_http3(server, port);
                }
            }
            None if !server.is_tls() => self.open(server, &port),
            None => self.add_tls(server, port, http3),
        }
    }

    /// A server on the port and address of a plaintext server: HTTP joins HTTP, all else is refused.
    fn join_plain_text(&mut self, server: Arc<GatewayServer>, port: &ServerPort, current: &ServerPort) {
        let existing = Protocol::parse(&current.protocol);
        if !(existing.is_http() && (server.protocol.is_http() || server.protocol == existing)) {
            let reason = format!("protocol {} conflicts with {} there", port.protocol, current.protocol);
            return self.refuse(&server, port.number, &reason);
        }
        if server.route_name.is_empty() {
            return self.refuse(&server, port.number, "it has no route name");
        }
        if let Some(servers) = self.out.servers.get_mut(current) {
            servers.servers.push(server.clone());
        }
        self.out.servers_by_route_name.entry(server.route_name.clone()).or_default().push(server);
    }

    /// A further TLS server on a port.
    fn add_tls(&mut self, server: Arc<GatewayServer>, port: ServerPort, http3: bool) {
        if server.is_http() {
            match self.out.servers_by_route_name.entry(server.route_name.clone()) {
                Entry::Occupied(_) => {
                    return self.refuse(&server, port.number, "two HTTPS servers need different port names");
                }
                Entry::Vacant(entry) => entry.insert(vec![server.clone()]),
            };
        }
        match self.out.servers.entry(port.clone()) {
            Entry::Occupied(mut servers) => servers.get_mut().servers.push(server.clone()),
            Entry::Vacant(entry) => {
                entry.insert(MergedServers { servers: vec![server.clone()], route_name: String::new() });
                self.out.server_ports.push(port.clone());
            }
        }
        if http3 {
            self.offer_http3(server, port);
        }
    }

    /// The first server with this port, protocol and address.
    fn open(&mut self, server: Arc<GatewayServer>, port: &ServerPort) {
        if !server.is_tls() {
            self.plain_text.insert(port.number, port.clone());
        }
        let route_name = server.route_name.clone();
        if server.is_http() {
            self.out.servers_by_route_name.insert(route_name.clone(), vec![server.clone()]);
        }
        match self.out.servers.entry(port.clone()) {
            // A TLS server with the same protocol name came first; the two are told apart by transport.
            Entry::Occupied(mut servers) => servers.get_mut().servers.push(server),
            Entry::Vacant(entry) => {
                entry.insert(MergedServers { servers: vec![server], route_name });
                self.out.server_ports.push(port.clone());
            }
        }
    }

    /// A further server with this port, protocol and address, where another address has plaintext.
    fn join(&mut self, server: Arc<GatewayServer>, port: &ServerPort) {
        let route_name = server.route_name.clone();
        if let Some(servers) = self.out.servers.get_mut(port) {
            servers.servers.push(server.clone());
            servers.route_name.clone_from(&route_name);
        }
        if !route_name.is_empty() {
            self.out.servers_by_route_name.entry(route_name).or_default().push(server);
        }
    }

    fn offer_http3(&mut self, server: Arc<GatewayServer>, port: ServerPort) {
        self.out.http3_advertising_routes.insert(server.route_name.clone());
        self.out.quic_servers.entry(port).or_default().servers.push(server);
    }

    /// Marks the hosts of a TLS server as taken on its port and address, or names one that is taken already. Terminated
    /// servers are told apart by SNI alone, so there `a/*.com` and `b/*.com` are the same; passed-through servers get their
    /// SNI matches from VirtualServices, whose namespaces tell them apart.
    fn claim_hosts(&mut self, server: &GatewayServer, bound: u32) -> Option<String> {
        let taken = self.tls_hosts.entry((bound, server.spec.bind.clone())).or_default();
        let mut claims: BTreeSet<String> = server.spec.hosts.iter().cloned().collect();
        if server.is_tls() && !server.is_passthrough() {
            claims.extend(server.sni_hosts.iter().map(|h| format!("sni {h}")));
        }
        if let Some(host) = claims.iter().find(|c| taken.contains(*c)) {
            return Some(host.trim_start_matches("sni ").to_string());
        }
        taken.extend(claims);
        None
    }

    fn refuse(&mut self, server: &GatewayServer, bound: u32, reason: &str) {
        let (gateway, port) = (&server.gateway, &server.port);
        self.out.conflicts.push(format!(
            "gateway {gateway}: the {} server {} for {} on port {bound} is left out: {reason}",
            port.protocol,
            port.name,
            server.spec.hosts.join(", "),
        ));
    }

    fn finish(mut self) -> MergedGateway {
        let servers = self.out.servers.values().flat_map(|s| &s.servers);
        self.out.auto_passthrough_sni_hosts = servers
            .filter(|s| s.tls_mode() == Some(TlSmode::AutoPassthrough))
            .flat_map(|s| s.spec.hosts.iter().cloned())
            .collect();
        for (name, servers) in &self.out.servers_by_route_name {
            let number = name.split('.').nth(1).and_then(|n| n.parse().ok()).unwrap_or_default();
            self.out.port_map.entry(number).or_default().extend(servers.iter().map(|s| s.port.number));
        }
        self.out
    }
}
