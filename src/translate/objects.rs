//! What translators look up: objects by name, services by host.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::model::{Config, EndpointIndex, EndpointSet, Features, Hostname, Kind, Mesh, PushInputs, Service};

/// Services whose endpoints were looked at, with the stamp that these had; without endpoints 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadEndpoints(BTreeMap<(Hostname, Arc<str>), u64>);

impl ReadEndpoints {
    /// Whether the index still holds what was seen.
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
    /// Indexes the inputs; of remote clusters' objects nothing is read.
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

    /// An object by name; namespace empty for kinds of the cluster.
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&'a Arc<Config>> {
        self.by_name.get(&(kind, namespace, name)).copied()
    }

    /// The services of a host name, one for each namespace that has it.
    pub fn services(&self, hostname: &str) -> &[&'a Arc<Service>] {
        self.services.get(hostname).map_or(&[], Vec::as_slice)
    }

    /// The endpoints of a service. That they were looked at is noted: only their change makes a translation old.
    pub fn endpoints(&self, service: &Service) -> Option<&'a Arc<EndpointSet>> {
        let found = self.inputs.registry.endpoints.get(&service.hostname, &service.namespace);
        self.read.borrow_mut().0.insert(service.key(), found.map_or(0, |set| set.stamp));
        found
    }

    /// What was looked at of endpoints.
    pub fn into_read_endpoints(self) -> ReadEndpoints {
        self.read.into_inner()
    }

    /// Mesh settings.
    pub fn mesh(&self) -> &'a Mesh {
        &self.inputs.mesh
    }

    /// Feature flags.
    pub fn features(&self) -> &'a Features {
        &self.inputs.features
    }
}
