//! The imports of one egress listener (Istio's `convertIstioListenerToWrapper`).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{EgressListener, hosts::ImportedHosts};
use crate::{
    model::{
        Config, Hostname, Protocol, Registry, Service,
        host::{is_wildcard, specificity},
    },
    proto::networking::IstioEgressListener,
    push::{
        context::PushContext,
        virtual_services::{MESH_GATEWAY, has_gateway_semantics},
    },
};

impl EgressListener {
    /// The listener as a namespace sees it; without a `spec` it imports everything.
    pub(super) fn build(context: &PushContext, namespace: &str, spec: Option<&IstioEgressListener>) -> Self {
        let entries: Vec<&str> = spec.map_or(vec!["*/*"], |s| s.hosts.iter().map(String::as_str).collect());
        let hosts = ImportedHosts::parse(entries, namespace);
        let virtual_services = select_virtual_services(context, namespace, &hosts);
        let services = select_services(context, namespace, &hosts, spec.and_then(port_to_match));
        let most_specific_virtual_services = most_specific(&virtual_services, &services);
        Self { spec: spec.cloned(), services, virtual_services, most_specific_virtual_services }
    }

    /// The port that services must have to be imported, if any.
    pub(super) fn matched_port(&self) -> Option<u32> {
        self.spec.as_ref().and_then(port_to_match)
    }
}

/// A listener with a port imports that port of services, unless it is a generic HTTP proxy.
fn port_to_match(spec: &IstioEgressListener) -> Option<u32> {
    let port = spec.port.as_ref()?;
    (port.number != 0 && Protocol::parse(&port.protocol) != Protocol::HttpProxy).then_some(port.number)
}

fn select_virtual_services(context: &PushContext, namespace: &str, hosts: &ImportedHosts) -> Vec<Arc<Config>> {
    let unified = context.features().unified_sidecar_scope;
    let mut selected = Vec::new();
    let mut seen = HashSet::new();
    for list in context.virtual_services.lists(namespace, MESH_GATEWAY) {
        // Routes of the Gateway API in the own namespace are a consumer's wish and come before the producer's.
        let own_route = |c: &&Arc<Config>| unified && has_gateway_semantics(c) && *c.meta.namespace == *namespace;
        for config in list.iter().filter(own_route).chain(list.iter().filter(|c| !own_route(c))) {
            if imports_route(config, hosts) && seen.insert((&config.meta.namespace, &config.meta.name)) {
                selected.push(config.clone());
            }
        }
    }
    selected
}

fn imports_route(config: &Config, hosts: &ImportedHosts) -> bool {
    let namespace = &*config.meta.namespace;
    let gateway_semantics = has_gateway_semantics(config);
    let route_hosts = config.virtual_service().map_or(&[][..], |s| &s.hosts);
    hosts.of(namespace).any(|imported| {
        let imports = |host: &&String| imported.imports_route_host(host, gateway_semantics);
        route_hosts.iter().filter(imports).any(|host| !hosts.excludes(namespace, host))
    })
}

fn select_services(
    context: &PushContext,
    namespace: &str,
    hosts: &ImportedHosts,
    port: Option<u32>,
) -> Vec<Arc<Service>> {
    let candidates = if hosts.exact_only {
        let found = hosts.exact().filter_map(|(namespace, host)| context.services.get(host, namespace));
        let mut found: Vec<_> = found.filter(|s| context.services.is_visible(s, namespace)).cloned().collect();
        found.sort_by(|a, b| crate::push::services::push_order(a).cmp(&crate::push::services::push_order(b)));
        found
    } else {
        context.services.visible_to(&context.inputs, namespace)
    };
    let mut imported: Vec<Arc<Service>> = candidates.iter().filter_map(|s| import(s, hosts, port)).collect();
    let prefer_kubernetes = context.features().unified_sidecar_scope;
    let namespaces = namespace_of_hosts(&imported, namespace, prefer_kubernetes);
    imported.retain(|s| namespaces.get(&s.hostname).is_some_and(|chosen| *chosen == s.namespace));
    imported
}

/// The service as it is imported: whole, or cut down to the listener's port and to the aliases that are imported too.
fn import(service: &Arc<Service>, hosts: &ImportedHosts, port: Option<u32>) -> Option<Arc<Service>> {
    if hosts.excludes(&service.namespace, &service.hostname) {
        return None;
    }
    hosts.of(&service.namespace).find_map(|imported| {
        if !imported.imports(&service.hostname) {
            return None;
        }
        let service = match port {
            Some(port) => with_ports(service, |p| p == port)?,
            None => service.clone(),
        };
        if service.aliases.iter().all(|(alias, _)| imported.imports(alias)) {
            return Some(service);
        }
        let mut cut = Service::clone(&service);
        cut.aliases.retain(|(alias, _)| imported.imports(alias));
        Some(Arc::new(cut.stamped()))
    })
}

/// The service with only those of its ports; itself when it has no other, `None` when it has none of them.
pub(super) fn with_ports(service: &Arc<Service>, wanted: impl Fn(u32) -> bool) -> Option<Arc<Service>> {
    let count = service.ports.iter().filter(|p| wanted(p.port)).count();
    match count {
        0 => None,
        n if n == service.ports.len() => Some(service.clone()),
        _ => {
            let mut cut = Service::clone(service);
            cut.ports.retain(|p| wanted(p.port));
            Some(Arc::new(cut.stamped()))
        }
    }
}

/// Of the namespaces that a host is imported from, the one that counts: the own one, else Kubernetes', else the first.
fn namespace_of_hosts(services: &[Arc<Service>], own: &str, prefer_kubernetes: bool) -> HashMap<Hostname, Arc<str>> {
    let mut chosen: HashMap<&Hostname, &Arc<Service>> = HashMap::new();
    for service in services {
        let existing = *chosen.entry(&service.hostname).or_insert(service);
        let is_kubernetes = |s: &Service| s.registry == Registry::Kubernetes;
        let better = *service.namespace == *own
            || (prefer_kubernetes && is_kubernetes(service) && !is_kubernetes(existing) && *existing.namespace != *own);
        if better {
            chosen.insert(&service.hostname, service);
        }
    }
    chosen.into_values().map(|s| (s.hostname.clone(), s.namespace.clone())).collect()
}

/// For each service the VirtualService with the most specific host; of equal hosts the first VirtualService counts.
fn most_specific(routes: &[Arc<Config>], services: &[Arc<Service>]) -> HashMap<Hostname, (Arc<str>, Arc<str>)> {
    let mut by_host: HashMap<&str, &Arc<Config>> = HashMap::new();
    for config in routes {
        for host in config.virtual_service().map_or(&[][..], |s| &s.hosts) {
            by_host.entry(host).or_insert(config);
        }
    }
    let mut wildcards: Vec<&str> = by_host.keys().copied().filter(|host| is_wildcard(host)).collect();
    wildcards.sort_by(|a, b| specificity(a, b));
    let find = |host: &str| {
        let suffix = host.strip_prefix('*').unwrap_or(host);
        let covers = |wildcard: &&&str| suffix.ends_with(wildcard.trim_start_matches('*'));
        by_host.get(host).or_else(|| wildcards.iter().find(covers).and_then(|wildcard| by_host.get(wildcard)))
    };
    services
        .iter()
        .filter_map(|s| {
            let config = find(&s.hostname)?;
            Some((s.hostname.clone(), (config.meta.namespace.clone(), config.meta.name.clone())))
        })
        .collect()
}
