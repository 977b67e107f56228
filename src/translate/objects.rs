//! What translators look up: objects by name, services by host.

use std::{collections::HashMap, sync::Arc};

use crate::model::{Config, Features, Kind, Mesh, PushInputs, Service};

/// The inputs of a translation, indexed.
pub struct Objects<'a> {
    inputs: &'a PushInputs,
    by_name: HashMap<(Kind, &'a str, &'a str), &'a Arc<Config>>,
    services: HashMap<&'a str, Vec<&'a Arc<Service>>>,
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
        Self { inputs, by_name, services }
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

    /// The inputs themselves.
    pub fn inputs(&self) -> &'a PushInputs {
        self.inputs
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
