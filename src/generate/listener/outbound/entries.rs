//! The outbound listeners of a sidecar while services are added to them, one draft per address and port, and the outcome
//! when two services want the same one (Istio's `buildSidecarOutboundListener`).
//!
//! HTTP services share a listener, since routes tell them apart. HTTP and TCP on one address become a listener that looks at
//! the first bytes. Of two TCP services with equal matches the first one stays. Mongo and MySQL share with nothing, since
//! looking at first bytes breaks protocols in which the server speaks first.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use super::{Binding, OutboundService, chains};
use crate::{
    generate::{
        addresses,
        listener::{
            bind::listener_name,
            builder::Builder,
            conflict::Conflict,
            filter_chain::Chain,
            http_options::{HttpOptions, Routes},
        },
        proxy_config::ListenerClass,
    },
    model::{Config, Port, Protocol, Registry, Resolution, service::UNSPECIFIED_IP},
};

/// A listener in the making.
#[derive(Debug)]
pub struct ListenerDraft {
    /// The port of the service that came first.
    pub port: Port,
    /// Its address.
    pub binding: Binding,
    /// Its chains.
    pub chains: Vec<Chain>,
    /// The protocol that it takes; `Unsupported` where Envoy detects it.
    protocol: Protocol,
    /// Made for a port that a Sidecar names: services of later egress listeners stay out.
    locked: bool,
}

/// All listeners in the making, by primary address and port.
#[derive(Debug, Default)]
pub struct ListenerDrafts {
    map: BTreeMap<(String, u32), ListenerDraft>,
    /// Ports whose listener on all addresses takes HTTP; it goes on taking it.
    http_ports: HashSet<u32>,
    conflicts: Vec<Conflict>,
}

/// The outcome of a newcomer at an existing entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meeting {
    /// There is no entry, or the newcomer takes its place.
    Replace,
    /// Chains are merged, and the listener detects the protocol.
    Sniff,
    /// Chains are merged.
    Merge,
}

impl ListenerDrafts {
    /// No further service may be added to the entries that there are.
    pub fn lock(&mut self) {
        for entry in self.map.values_mut() {
            entry.locked = true;
        }
    }

    /// The finished drafts, ordered by address and port, and the conflicts.
    pub fn finish(self) -> (impl Iterator<Item = ListenerDraft>, Vec<Conflict>) {
        (self.map.into_values(), self.conflicts)
    }

    /// Whether a service port needs no draft: HTTP without an address of its own, which an existing listener takes. Nearly all
    /// HTTP services are such.
    #[must_use]
    pub fn take(&self, port: &Port, binding: &Binding) -> bool {
        binding.primary().is_empty()
            && port.protocol.is_http()
            && port.protocol != Protocol::HttpProxy
            && self.http_ports.contains(&port.port)
    }

    /// Adds one service on one port.
    pub fn add(&mut self, builder: &Builder, mut target: OutboundService, virtual_services: &[Arc<Config>]) {
        let declared = target.port.protocol;
        if target.service.resolution == Resolution::Alias || matches!(declared, Protocol::Udp) {
            return;
        }
        resolve_binding(builder, &mut target);
        // A service without any address cannot be listened for.
        if target.binding.primary().is_empty() {
            return;
        }
        let key = (target.binding.primary().to_string(), target.port.port);
        let current = self.map.get(&key);
        if current.is_some_and(|c| c.locked) {
            return;
        }
        let Some((meeting, chains, protocol)) = plan(builder, &target, current, virtual_services) else {
            return;
        };
        if current.is_some_and(|c| !may_share(declared, c.protocol, meeting, &target)) {
            return;
        }
        match (self.map.get_mut(&key), meeting) {
            (Some(entry), Meeting::Sniff | Meeting::Merge) => {
                if merge(&mut entry.chains, chains) {
                    let name = listener_name(&key.0, key.1);
                    let host = &target.service.hostname;
                    self.conflicts.push(Conflict::outbound(name, entry.port.protocol, declared, host));
                }
                if meeting == Meeting::Sniff {
                    entry.protocol = Protocol::Unsupported;
                    self.note_http(builder, &key, Protocol::Unsupported);
                }
            }
            _ => {
                self.note_http(builder, &key, protocol);
                let OutboundService { port, binding, .. } = target;
                self.map.insert(key, ListenerDraft { port, binding, chains, protocol, locked: false });
            }
        }
    }

    fn note_http(&mut self, builder: &Builder, (bind, port): &(String, u32), protocol: Protocol) {
        if bind == wildcard(builder) && !protocol.is_tcp() {
            self.http_ports.insert(*port);
        }
    }
}

/// The plan for a newcomer: its outcome at the existing entry, its chains, and the protocol of a new entry; `None` when the
/// entry serves it already.
fn plan(
    builder: &Builder,
    target: &OutboundService,
    current: Option<&ListenerDraft>,
    virtual_services: &[Arc<Config>],
) -> Option<(Meeting, Vec<Chain>, Protocol)> {
    let protocol = target.port.protocol;
    if protocol == Protocol::HttpProxy {
        return Some((Meeting::Replace, vec![http_chain(builder, target)], protocol));
    }
    let current = current.map(|c| c.protocol);
    if protocol.is_http() {
        let meeting = match current {
            Some(existing) if existing.is_tcp() => Meeting::Sniff,
            Some(_) => return None,
            None => Meeting::Replace,
        };
        let chain = http_chain(builder, target);
        if target.binding.primary() == wildcard(builder) {
            // Unknown TCP traffic on the same port must not end in the connection manager.
            return Some((meeting, vec![sniffed(builder, chain)], Protocol::Unsupported));
        }
        return Some((meeting, vec![chain], protocol));
    }
    let tcp = chains::build(builder, target, virtual_services);
    if protocol.is_tcp() {
        let meeting = match current {
            Some(existing) if existing.is_http() => Meeting::Sniff,
            Some(_) => Meeting::Merge,
            None => Meeting::Replace,
        };
        return Some((meeting, tcp, protocol));
    }
    let meeting = match current {
        Some(existing) if existing.is_http() => Meeting::Replace,
        Some(existing) if existing.is_tcp() => Meeting::Sniff,
        // The HTTP chain is there already.
        Some(_) => return Some((Meeting::Merge, tcp, protocol)),
        None => Meeting::Replace,
    };
    let mut chains = tcp;
    chains.push(sniffed(builder, http_chain(builder, target)));
    Some((meeting, chains, protocol))
}

/// Protocols in which the server speaks first share a listener only with their own kind.
fn may_share(incoming: Protocol, existing: Protocol, meeting: Meeting, target: &OutboundService) -> bool {
    let proxy = meeting == Meeting::Replace && target.port.protocol == Protocol::HttpProxy;
    let server_first = |p| matches!(p, Protocol::Mongo | Protocol::Mysql);
    proxy || incoming == existing || !(server_first(incoming) || server_first(existing))
}

/// Adds the chains that no existing one shadows; whether some was left out.
fn merge(existing: &mut Vec<Chain>, incoming: Vec<Chain>) -> bool {
    let wanted = existing.len() + incoming.len();
    for chain in incoming {
        if !existing.iter().any(|e| e.conflicts_with(&chain)) {
            existing.push(chain);
        }
    }
    existing.len() < wanted
}

/// Fills in the address where no Sidecar names one: HTTP listens on all, TCP on the service's own; a CIDR is matched by the
/// chain.
fn resolve_binding(builder: &Builder, target: &mut OutboundService) {
    if !target.binding.primary().is_empty() {
        return;
    }
    let wildcards = || builder.wildcards().iter().map(|w| (*w).to_string()).collect::<Vec<_>>();
    if target.port.protocol.is_http() {
        target.binding.binds = wildcards();
        return;
    }
    let (service, view, features) = (&target.service, builder.view, builder.features());
    let mut address = addresses::address(service, view, features);
    let mut extra: Vec<String> = addresses::all_addresses(service, view, features).into_iter().skip(1).collect();
    if service.registry == Registry::External && address == UNSPECIFIED_IP {
        if chains::is_ipv6_only(builder) {
            address = "::".to_string();
        } else if view.is_dual_stack() {
            extra.push("::".to_string());
        }
    }
    if address.is_empty() {
        return;
    }
    let cidr = address.contains('/');
    let all: Vec<String> = std::iter::once(address).chain(extra).collect();
    if cidr {
        target.binding.binds = wildcards();
        target.cidrs = all;
    } else {
        target.binding.binds = all;
    }
}

fn wildcard(builder: &Builder) -> &'static str {
    builder.wildcards().first().copied().unwrap_or_default()
}

/// The HTTP chain of a listener. Its routes are named by the port, or by service and port where the listener is for one
/// service whose protocol is not declared, or by the socket's path.
fn http_chain(builder: &Builder, target: &OutboundService) -> Chain {
    let port = &target.port;
    let bind = target.binding.primary();
    let sniffs = !port.protocol.is_http() && !port.protocol.is_tcp();
    let name = if port.port == 0 {
        bind.to_string()
    } else if sniffs && bind != wildcard(builder) {
        format!("{}:{}", target.service.hostname, port.port)
    } else {
        port.port.to_string()
    };
    let mut options = HttpOptions::new(builder, ListenerClass::SidecarOutbound, port.protocol, Routes::Rds(name));
    options.use_remote_address = builder.features().sidecar_use_remote_address;
    options.service = Some(target.service.clone());
    Chain { http: Some(options), ..Default::default() }
}

fn sniffed(builder: &Builder, chain: Chain) -> Chain {
    Chain {
        application_protocols: builder.plaintext_http_alpns(),
        transport_protocol: "raw_buffer".to_string(),
        ..chain
    }
}
