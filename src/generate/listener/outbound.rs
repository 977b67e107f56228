//! Outbound listeners of a sidecar: one per address and port of the services that it sees, the HTTP proxy port, and the
//! virtual listener that takes captured traffic.
//!
//! They read the outbound half of the view only; of own IPs the first counts where it is an endpoint of a headless service.

mod chains;
mod entries;
mod finish;
mod virtual_listener;

use std::{net::IpAddr, sync::Arc};

pub use virtual_listener::fallthrough;

use self::entries::ListenerDrafts;
use super::{
    bind::{self, UNIX, Wanted, can_bind},
    builder::Builder,
    conflict::Conflict,
};
use crate::{
    generate::addresses,
    model::{Config, Endpoint, Port, Protocol, Registry, Resolution, Service, service::UNSPECIFIED_IP},
    proto::{envoy::config::listener::v3::Listener, networking::CaptureMode},
    push::EgressListener,
};

/// The address of a listener.
#[derive(Debug, Clone, Default)]
pub struct Binding {
    /// Addresses, the primary one first; empty until it is known from the service.
    pub binds: Vec<String>,
    /// It has a socket of its own; otherwise connections come by the virtual listener.
    pub bind_to_port: bool,
}

impl Binding {
    /// The address that names the listener; empty when there is none yet.
    #[must_use]
    pub fn primary(&self) -> &str {
        self.binds.first().map_or("", String::as_str)
    }
}

/// A service on a port of a listener.
#[derive(Debug, Clone)]
pub struct OutboundService {
    /// The service.
    pub service: Arc<Service>,
    /// The service's port, or the port that a Sidecar names.
    pub port: Port,
    /// The address of the listener.
    pub binding: Binding,
    /// Destinations that tell the service apart on a shared address.
    pub cidrs: Vec<String>,
    /// The destinations are single pods of a headless service.
    pub pod_cidrs: bool,
}

impl OutboundService {
    fn new(service: &Arc<Service>, port: &Port, binding: &Binding) -> Self {
        let (service, port, binding) = (service.clone(), port.clone(), binding.clone());
        Self { service, port, binding, cidrs: Vec::new(), pod_cidrs: false }
    }
}

/// All outbound listeners, then the HTTP proxy's, then the virtual one; and the conflicts between services.
#[must_use]
pub fn build(builder: &Builder) -> (Vec<Listener>, Vec<Conflict>) {
    let mut entries = ListenerDrafts::default();
    for egress in &builder.scope.egress {
        add_egress(builder, egress, &mut entries);
    }
    let fallthrough = fallthrough(builder);
    let (entries, conflicts) = entries.finish();
    let mut listeners: Vec<Listener> =
        entries.map(|entry| finish::listener(builder, entry, Some(&fallthrough))).collect();
    listeners.extend(finish::http_proxy(builder));
    listeners.extend(virtual_listener::build(builder));
    (listeners, conflicts)
}

fn add_egress(builder: &Builder, egress: &EgressListener, entries: &mut ListenerDrafts) {
    let binding = egress_binding(builder, egress);
    // Only these can give a TCP chain; looking at all of them for each service would be the square of their number.
    let virtual_services: Vec<Arc<Config>> = egress
        .virtual_services
        .iter()
        .filter(|c| c.virtual_service().is_some_and(|v| !v.tls.is_empty() || !v.tcp.is_empty()))
        .cloned()
        .collect();
    if let Some(given) = egress.spec.as_ref().and_then(|s| s.port.as_ref()) {
        let port =
            Port { name: given.name.as_str().into(), port: given.number, protocol: Protocol::parse(&given.protocol) };
        if !can_bind(builder, wanted(&binding, &port)) {
            return;
        }
        for service in &egress.services {
            entries.add(builder, OutboundService::new(service, &port, &binding), &virtual_services);
        }
        return;
    }
    entries.lock();
    for service in &egress.services {
        for port in service.ports.iter().filter(|p| can_bind(builder, wanted(&binding, p))) {
            add_service_port(builder, service, port, &binding, &virtual_services, entries);
        }
    }
}

fn wanted<'a>(binding: &'a Binding, port: &Port) -> Wanted<'a> {
    Wanted {
        bind_to_port: binding.bind_to_port,
        bind: binding.primary(),
        port: port.port,
        protocol: port.protocol,
        virtual_ports: true,
    }
}

fn egress_binding(builder: &Builder, egress: &EgressListener) -> Binding {
    let spec = egress.spec.as_ref();
    let given = spec.map_or("", |s| s.bind.as_str());
    let bind_to_port = bind::is_not_captured(builder)
        || spec.is_some_and(|s| s.capture_mode() == CaptureMode::None)
        || given.starts_with(UNIX);
    let binds = if !given.is_empty() {
        vec![given.to_string()]
    } else if bind_to_port {
        builder.localhosts().iter().map(|l| (*l).to_string()).collect()
    } else {
        Vec::new()
    };
    Binding { binds, bind_to_port }
}

fn add_service_port(
    builder: &Builder,
    service: &Arc<Service>,
    port: &Port,
    binding: &Binding,
    virtual_services: &[Arc<Config>],
    entries: &mut ListenerDrafts,
) {
    if entries.take(port, binding) {
        return;
    }
    let target = OutboundService::new(service, port, binding);
    if !binding.primary().is_empty() || !is_headless_port(builder, service, port) {
        entries.add(builder, target, virtual_services);
        return;
    }
    let endpoints = endpoints_of(builder, service, port);
    // Without endpoints a service that selects workloads gets no listener, so that scaling down does not open a wildcard
    // one that other services would collide with. One that never selects anything has no other way.
    if endpoints.is_empty() && service.registry != Registry::Kubernetes && service.label_selectors.is_empty() {
        entries.add(builder, target, virtual_services);
        return;
    }
    let one_listener = builder.features().enable_headless_filter_chain_listener && port.protocol.is_tcp();
    for endpoint in endpoints {
        let first = endpoint.addresses.first();
        // Traffic to the workload itself does not pass an outbound listener.
        if first.is_none() || first == builder.view.ips.first() || endpoint.addresses.iter().any(|a| !is_ip(a)) {
            continue;
        }
        let pod: Vec<String> = endpoint.addresses.iter().map(ToString::to_string).collect();
        let mut target = target.clone();
        if one_listener {
            target.binding.binds = builder.wildcards().iter().map(|w| (*w).to_string()).collect();
            target.cidrs = pod;
            target.pod_cidrs = true;
        } else {
            target.binding.binds = pod;
        }
        entries.add(builder, target, virtual_services);
    }
}

fn is_ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// Whether a port needs a listener for each pod: a headless service whose protocol does not carry the host's name.
fn is_headless_port(builder: &Builder, service: &Service, port: &Port) -> bool {
    let protocol = port.protocol;
    service.resolution == Resolution::Passthrough
        && (protocol.is_tcp() || protocol.is_unsupported())
        && addresses::address(service, builder.view, builder.features()) == UNSPECIFIED_IP
}

fn endpoints_of<'a>(builder: &'a Builder, service: &Service, port: &'a Port) -> Vec<&'a Arc<Endpoint>> {
    let set = builder.context.endpoints().get(&service.hostname, &service.namespace);
    set.into_iter()
        .flat_map(|s| s.iter())
        .filter(|e| match e.legacy_cluster_port_key {
            0 => e.service_port_name == port.name,
            number => number == port.port,
        })
        .collect()
}
