//! The service registry: ServiceEntries, WorkloadEntries, Kubernetes Services and pods become services, endpoints and
//! workloads. A pure state machine; the actor around it only passes messages.

mod memory;
mod updates;

pub use memory::{service_order, snapshot_of};
pub use updates::{EndpointPush, XdsUpdate};

use std::sync::Arc;

use crate::model::{ConfigEvent, ConfigSnapshot, Features, Mesh, RegistrySnapshot};

/// The registry's state.
#[derive(Debug, Default)]
pub struct ServiceEntryStore {}

impl ServiceEntryStore {
    /// An empty registry.
    #[must_use]
    pub fn new(_mesh: Arc<Mesh>, _features: Arc<Features>) -> Self {
        Self::default()
    }

    /// A registry that holds what these configs say; equal to applying them as events in any order.
    #[must_use]
    pub fn of(mesh: Arc<Mesh>, features: Arc<Features>, configs: &ConfigSnapshot) -> Self {
        let mut store = Self::new(mesh, features);
        for config in configs.by_kind.values().flat_map(|l| l.iter()) {
            store.apply(&ConfigEvent { old: None, current: config.clone(), kind: crate::model::EventKind::Add });
        }
        store
    }

    /// Takes one change in and says what it means for xDS.
    pub fn apply(&mut self, _event: &ConfigEvent) -> Vec<XdsUpdate> {
        Vec::new()
    }

    /// What the registry knows now. Parts that did not change since the last call are the same `Arc`.
    #[must_use]
    pub fn snapshot(&mut self) -> RegistrySnapshot {
        RegistrySnapshot::default()
    }
}
