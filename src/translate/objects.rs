//! Lookups for translators: objects by name, services by host.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::model::{Config, EndpointIndex, EndpointSet, Features, Hostname, Kind, Mesh, PushInputs, Service};

/// Services whose endpoints were read, with the stamp of their endpoint set; 0 without endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadEndpoints(BTreeMap<(Hostname, Arc<str>), u64>);

impl ReadEndpoints {
    /// Whether the index still holds these endpoint sets.
    pub fn are_those_of(&self, index: &EndpointIndex) -> bool {
        self.0.iter().all(|((host, namespace), stamp)| index.get(host, namespace).map_or(0, |set| set.stamp) == *stamp)
    }
}

/// The inputs of a translation, indexed.
pub struct Objects<'a> {
    inputs: &'a PushInputs,
    by_name: HashMap<(Kind, &'a str, &'a str), &'a Arc<Config>>,
    services: HashMap<&'a str, Vec<&'a Arc<Service>>>,
    read: RefCell<ReadEndpoints>,
}

impl<'a> Objects<'a> {
    /// Indexes the inputs; objects of remote clusters are left out.
    pub fn of(inputs: &'a PushInputs) -> Self {
        let mut by_name = HashMap::new();
        let mut services: HashMap<&str, Vec<_>> = HashMap::new();
        if super::changes::is_needed(inputs) {
            let all = inputs.configs.by_kind.values().flat_map(|list| list.iter());
            for config in all.filter(|c| c.is_of_main_cluster()) {
                by_name.insert((config.kind(), &*config.meta.namespace, &*config.meta.name), config);
            }
            for service in inputs.registry.services.iter() {
                services.entry(&service.hostname).or_default().push(service);
            }
        }
        Self { inputs, by_name, services, read: RefCell::default() }
    }

    /// All objects of a kind, oldest first.
    pub fn list(&self, kind: Kind) -> &'a [Arc<Config>] {
        self.inputs.configs.list(kind)
    }

    /// An object by name; the namespace is empty for cluster-scoped kinds.
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&'a Arc<Config>> {
        self.by_name.get(&(kind, namespace, name)).copied()
    }

    /// The services with a host name, one for each namespace that has it.
    pub fn services(&self, hostname: &str) -> &[&'a Arc<Service>] {
        self.services.get(hostname).map_or(&[], Vec::as_slice)
    }

    /// The endpoints of a service. The read is recorded: only a change of endpoints that were read requires a new translation.
    pub fn endpoints(&self, service: &Service) -> Option<&'a Arc<EndpointSet>> {
        let found = self.inputs.registry.endpoints.get(&service.hostname, &service.namespace);
        self.read.borrow_mut().0.insert(service.key(), found.map_or(0, |set| set.stamp));
        found
    }

    /// The endpoint sets that were read.
    pub fn into_read_endpoints(self) -> ReadEndpoints {
        self.read.into_inner()
    }

    /// Effective mesh settings.
    pub fn mesh(&self) -> &'a Mesh {
        &self.inputs.mesh
    }

    /// Istio's feature flags.
    pub fn features(&self) -> &'a Features {
        &self.inputs.features
    }
}
