//! Inbound listeners of a sidecar: `virtualInbound`, which takes all captured traffic and has chains for each port of the
//! workload, and listeners of their own for ports that are not captured (Istio's `listener_inbound.go`).
//!
//! For each port the mode of mutual TLS decides the chains: mutual TLS, plaintext, or both, distinguished by inspectors.
//! A stock Envoy without a workload certificate gets plaintext chains where the mode is permissive: chains that wait for a
//! certificate that never comes would keep the whole listener from becoming ready. Strict chains are generated all the same,
//! and take nothing until there is a certificate.

mod chains;
mod options;

use std::{collections::BTreeMap, net::IpAddr};

use self::chains::ChainConfig;
use super::{
    bind::{self, Wanted, accepts_per_event, additional, address, can_bind},
    builder::Builder,
    conflict::Conflict,
    listener_filters,
    tcp::{self, BLACK_HOLE_CLUSTER, tcp_filter, to_cluster},
};
use crate::{
    generate::{names::inbound_subset_key, proxy_config::ListenerClass},
    model::{Hostname, Port, Protocol, Registry, ServiceTarget, node::InterceptionMode},
    proto::{
        envoy::config::{
            core::v3::TrafficDirection,
            listener::v3::{FilterChain, FilterChainMatch, Listener},
        },
        networking::{CaptureMode, IstioIngressListener, Sidecar},
    },
    push::authn::PeerPolicy,
};

const CLASS: ListenerClass = ListenerClass::SidecarInbound;
const VIRTUAL_INBOUND: &str = "virtualInbound";
const PASSTHROUGH_CLUSTER: &str = "InboundPassthroughCluster";

/// `virtualInbound` first, then listeners with sockets of their own by port; and the conflicts between ports.
#[must_use]
pub fn build(builder: &Builder) -> (Vec<Listener>, Vec<Conflict>) {
    let policy = builder.context.authn.policy(&builder.view.namespace, &builder.view.labels);
    let mut own = Vec::new();
    let mut captured = Vec::new();
    let ChainConfigs { by_port, conflicts } = chain_configs(builder);
    for config in by_port.into_values() {
        let bind_to_port = config.bind_to_port;
        let (name, mut addresses, port) = (config.name(false), vec![config.bind.clone()], config.target_port);
        addresses.extend(config.extra_binds.iter().cloned());
        let built = chains::for_port(builder, config, &policy);
        if bind_to_port {
            own.push(listener(builder, &name, &addresses, port, true, built));
        } else {
            captured.extend(built);
        }
    }
    if bind::is_not_captured(builder) {
        return (own, conflicts);
    }
    let mut all = passthrough_chains(builder, &policy);
    all.extend(captured);
    let port = u32::try_from(builder.mesh().proxy_inbound_listen_port).unwrap_or_default();
    let wildcards: Vec<String> = builder.wildcards().iter().map(|w| (*w).to_string()).collect();
    own.insert(0, listener(builder, VIRTUAL_INBOUND, &wildcards, port, false, all));
    (own, conflicts)
}

/// The ports of a workload. The first to name a port has it.
#[derive(Debug, Default)]
struct ChainConfigs {
    by_port: BTreeMap<u32, ChainConfig>,
    conflicts: Vec<Conflict>,
}

impl ChainConfigs {
    fn add(&mut self, config: ChainConfig) {
        let Some(existing) = self.by_port.get(&config.target_port) else {
            self.by_port.insert(config.target_port, config);
            return;
        };
        // Two services of one port and protocol are no matter.
        if existing.port.protocol != config.port.protocol && existing.host != config.host {
            let port = config.target_port;
            self.conflicts.push(Conflict::inbound(config.name(false), port, &existing.host, &config.host));
        }
    }
}

fn listener(
    builder: &Builder,
    name: &str,
    addresses: &[String],
    port: u32,
    bind_to_port: bool,
    chains: Vec<FilterChain>,
) -> Listener {
    let tproxy = !bind_to_port && builder.view.metadata.interception_mode == InterceptionMode::Tproxy;
    let further = if builder.features().istio_dual_stack { addresses.get(1..).unwrap_or_default() } else { &[] };
    let mut listener = Listener {
        name: name.to_string(),
        address: addresses.first().map(|a| address(a, port)),
        additional_addresses: additional(further, port),
        traffic_direction: TrafficDirection::Inbound.into(),
        continue_on_listener_filters_timeout: true,
        max_connections_to_accept_per_socket_event: accepts_per_event(builder),
        transparent: tproxy.then_some(true),
        access_log: builder.telemetry(CLASS).logs.listener.clone(),
        listener_filters: listener_filters::inbound(builder, &chains, bind_to_port),
        listener_filters_timeout: builder.mesh().protocol_detection_timeout,
        filter_chains: chains,
        ..Default::default()
    };
    bind::balance(builder, &mut listener, "INBOUND_LISTENER_EXACT_BALANCE");
    listener
}

/// The ports of the workload, by number: those of a Sidecar's ingress, else those of its services. The oldest service of a
/// port decides its protocol.
fn chain_configs(builder: &Builder) -> ChainConfigs {
    let sidecar = builder.scope.sidecar.as_ref().and_then(|c| c.sidecar());
    let Some(sidecar) = sidecar.filter(|s| !s.ingress.is_empty()) else {
        // Without capture the application itself listens on its ports.
        if bind::is_not_captured(builder) {
            return ChainConfigs::default();
        }
        return of_services(builder, None);
    };
    let mut configs = if builder.features().allow_sidecar_service_inbound_listener_merge {
        of_services(builder, Some(sidecar))
    } else {
        ChainConfigs::default()
    };
    for config in sidecar.ingress.iter().filter_map(|ingress| of_ingress(builder, ingress)) {
        configs.add(config);
    }
    configs
}

fn of_services(builder: &Builder, except: Option<&Sidecar>) -> ChainConfigs {
    let mut configs = ChainConfigs::default();
    let bind_to_port = bind::is_not_captured(builder);
    let wildcard = builder.wildcards().first().copied().unwrap_or_default();
    let in_sidecar =
        |port: u32| except.is_some_and(|s| s.ingress.iter().filter_map(|i| i.port.as_ref()).any(|p| p.number == port));
    for target in builder.view.targets.iter() {
        let port = target.target_port;
        let protocol = target.port.protocol;
        let wanted = Wanted { bind_to_port, bind: wildcard, port, protocol, virtual_ports: true };
        if can_bind(builder, wanted) && !in_sidecar(port) {
            configs.add(of_target(builder, target, bind_to_port));
        }
    }
    configs
}

fn of_target(builder: &Builder, target: &ServiceTarget, bind_to_port: bool) -> ChainConfig {
    let service = &target.service;
    let (first, rest) = builder.wildcards().split_first().map_or(("", &[][..]), |(f, r)| (*f, r));
    ChainConfig {
        cluster: inbound_subset_key(target.target_port),
        port: target.port.clone(),
        target_port: target.target_port,
        bind: first.to_string(),
        extra_binds: rest.iter().map(|b| (*b).to_string()).collect(),
        bind_to_port,
        host: service.hostname.clone(),
        kubernetes: (service.registry == Registry::Kubernetes)
            .then(|| (service.name.clone(), service.namespace.clone())),
        ..Default::default()
    }
}

fn of_ingress(builder: &Builder, ingress: &IstioIngressListener) -> Option<ChainConfig> {
    let given = ingress.port.as_ref()?;
    let port =
        Port { name: given.name.as_str().into(), port: given.number, protocol: Protocol::parse(&given.protocol) };
    let bind_to_port = match ingress.capture_mode() {
        CaptureMode::Default => bind::is_not_captured(builder),
        mode => mode == CaptureMode::None,
    };
    let protocol = port.protocol;
    let wanted = Wanted { bind_to_port, bind: &ingress.bind, port: port.port, protocol, virtual_ports: false };
    if !can_bind(builder, wanted) {
        return None;
    }
    let mut binds = if ingress.bind.is_empty() { own_binds(builder) } else { vec![ingress.bind.clone()] };
    let extra_binds = binds.split_off(binds.len().min(1));
    let scope = &builder.scope;
    let tls = ingress.tls.clone().filter(|_| builder.features().enable_tls_on_sidecar_ingress);
    let mut config = ChainConfig {
        cluster: inbound_subset_key(given.number),
        target_port: given.number,
        port,
        bind: binds.pop().unwrap_or_default(),
        extra_binds,
        bind_to_port,
        // A Sidecar has no host: telemetry shows its name.
        host: Hostname::from(format!("{}.{}", scope.name, scope.namespace)),
        origin: scope.sidecar.clone(),
        ..Default::default()
    };
    if let Some(mut tls) = tls {
        chains::drop_unknown_ciphers(&mut tls.cipher_suites);
        config.port.protocol = chains::after_termination(config.port.protocol);
        config.tls = Some(tls);
    }
    Some(config)
}

/// The workload's own address, where it has one that others can reach; else all addresses.
fn own_binds(builder: &Builder) -> Vec<String> {
    let global = |ip: &IpAddr| match ip {
        IpAddr::V4(v4) => {
            !(v4.is_unspecified() || v4.is_loopback() || v4.is_multicast() || v4.is_link_local() || v4.is_broadcast())
        }
        IpAddr::V6(v6) => !(v6.is_unspecified() || v6.is_loopback() || v6.is_multicast() || v6.is_unicast_link_local()),
    };
    let own = builder.view.ips.iter().find(|ip| ip.parse().is_ok_and(|parsed| global(&parsed)));
    match own {
        Some(ip) => vec![ip.to_string()],
        None => builder.wildcards().iter().map(|w| (*w).to_string()).collect(),
    }
}

/// The chains for traffic that no port of the workload takes: none back to the listener itself, then by the mode of the
/// workload and of ports that a policy names although no service has them.
fn passthrough_chains(builder: &Builder, policy: &PeerPolicy) -> Vec<FilterChain> {
    let mut all = vec![black_hole(builder)];
    let further = policy.ports.keys().copied().filter(|port| !is_served(builder, *port));
    for port in std::iter::once(0).chain(further) {
        let config = ChainConfig {
            cluster: PASSTHROUGH_CLUSTER.to_string(),
            port: Port { name: VIRTUAL_INBOUND.into(), port: 0, protocol: Protocol::Unsupported },
            target_port: port,
            passthrough: true,
            ..Default::default()
        };
        all.extend(chains::for_port(builder, config, policy));
    }
    all
}

fn is_served(builder: &Builder, port: u32) -> bool {
    let sidecar = builder.scope.sidecar.as_ref().and_then(|c| c.sidecar());
    match sidecar.filter(|s| !s.ingress.is_empty()) {
        Some(sidecar) => sidecar.ingress.iter().filter_map(|i| i.port.as_ref()).any(|p| p.number == port),
        None => builder.view.targets.iter().any(|t| t.target_port == port),
    }
}

fn black_hole(builder: &Builder) -> FilterChain {
    let mut filters: Vec<_> = tcp::metadata_exchange(builder).into_iter().collect();
    filters.extend(builder.telemetry(CLASS).stats.tcp.iter().cloned());
    filters.push(tcp_filter(&to_cluster(BLACK_HOLE_CLUSTER, BLACK_HOLE_CLUSTER)));
    FilterChain {
        name: "virtualInbound-blackhole".to_string(),
        filter_chain_match: Some(FilterChainMatch {
            destination_port: u32::try_from(builder.mesh().proxy_inbound_listen_port).ok(),
            ..Default::default()
        }),
        filters,
        ..Default::default()
    }
}
