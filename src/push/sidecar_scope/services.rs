//! The services of a scope: one per host, over all its listeners (Istio's `appendSidecarServices`).

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use crate::model::{Hostname, Registry, Service};

/// Services in the order in which they were first added, one per host.
#[derive(Debug, Default)]
pub(super) struct ScopeServices {
    pub(super) list: Vec<Arc<Service>>,
    places: HashMap<Hostname, usize>,
    /// Some host came with services of several namespaces.
    pub(super) is_contested: bool,
}

impl ScopeServices {
    /// Without services, with room for this many.
    pub(super) fn with_capacity(services: usize) -> Self {
        Self { list: Vec::with_capacity(services), places: HashMap::with_capacity(services), is_contested: false }
    }

    /// Adds a service. When its host is there already, a Kubernetes service replaces one that is not, two parts of one
    /// service become one with the ports of both, and anything else is left out.
    pub(super) fn add(&mut self, service: &Arc<Service>) {
        let place = match self.places.entry(service.hostname.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(self.list.len());
                self.list.push(service.clone());
                return;
            }
            Entry::Occupied(entry) => *entry.get(),
        };
        let Some(existing) = self.list.get_mut(place) else { return };
        self.is_contested |= existing.namespace != service.namespace;
        let is_kubernetes = |s: &Service| s.registry == Registry::Kubernetes;
        match (is_kubernetes(existing), is_kubernetes(service)) {
            (true, false) => {}
            (false, true) => *existing = service.clone(),
            _ if existing.ports == service.ports || !are_parts_of_one(existing, service) => {}
            _ => *existing = with_ports_of(existing, service),
        }
    }

    pub(super) fn by_host(&self) -> HashMap<Hostname, Arc<Service>> {
        self.list.iter().map(|s| (s.hostname.clone(), s.clone())).collect()
    }
}

fn are_parts_of_one(a: &Service, b: &Service) -> bool {
    a.namespace == b.namespace
        && a.resolution == b.resolution
        && a.registry == b.registry
        && a.labels == b.labels
        && a.label_selectors == b.label_selectors
        && a.export_to == b.export_to
}

fn with_ports_of(existing: &Arc<Service>, other: &Service) -> Arc<Service> {
    let mut merged = Service::clone(existing);
    for port in &other.ports {
        if merged.port_by_number(port.port).is_none() {
            merged.ports.push(port.clone());
        }
    }
    Arc::new(merged.stamped())
}
