//! One namespace of a cluster: its objects, and what was made of them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{pod::Pod, service::PortTarget};
use crate::{
    model::{Config, Endpoint, EventKind, Labels, Service, WorkloadInstance, difference},
    registry::selectors::{SelectorIndex, Workloads},
};

/// Namespace and name.
pub type Name = (Arc<str>, Arc<str>);

/// A pod before and after a change.
pub type Moved = (Option<Arc<Pod>>, Option<Arc<Pod>>);

/// WorkloadEntries by address, then by name.
pub type ByAddress = HashMap<Arc<str>, BTreeMap<Name, Arc<WorkloadInstance>>>;

/// A Service with its endpoints.
#[derive(Debug, Clone)]
pub struct Unit {
    /// The service.
    pub service: Arc<Service>,
    /// Its ports with their targets.
    pub ports: Vec<PortTarget>,
    /// Endpoints that its slices list.
    pub listed: Vec<Arc<Endpoint>>,
    /// Endpoints of WorkloadEntries that it selects.
    pub selected: Vec<Arc<Endpoint>>,
}

/// The Services of a namespace.
#[derive(Debug, Clone, Default)]
pub struct Services {
    /// By name.
    pub units: BTreeMap<Arc<str>, Arc<Unit>>,
    /// Names by selector.
    pub selectors: Arc<SelectorIndex<Arc<str>>>,
}

/// The pods of a namespace.
#[derive(Debug, Clone, Default)]
pub struct Pods {
    by_name: HashMap<Arc<str>, Arc<Pod>>,
    by_address: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl Pods {
    /// The pod of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Pod>> {
        self.by_name.get(name)
    }

    /// Names of pods that are others than in an earlier state of the namespace.
    pub fn moved_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a Arc<str>> {
        let same = |a: &Arc<Pod>, b: &Arc<Pod>| Arc::ptr_eq(a, b) || a == b;
        difference::of_maps(&before.by_name, &self.by_name, same).into_iter().map(|(name, ..)| name)
    }

    /// The ready pod with this address, the first by name.
    pub fn by_address(&self, address: &str) -> Option<&Arc<Pod>> {
        self.by_address.get(address)?.first().and_then(|name| self.by_name.get(name))
    }

    /// Puts or takes out a pod.
    pub fn set(&mut self, name: &Arc<str>, pod: Option<Arc<Pod>>) {
        if let Some(address) = self.by_name.remove(name).and_then(|p| p.ips.first().cloned())
            && let Some(names) = self.by_address.get_mut(&address)
        {
            names.remove(name);
            if names.is_empty() {
                self.by_address.remove(&address);
            }
        }
        let Some(pod) = pod else { return };
        if let Some(address) = pod.ips.first().filter(|_| pod.in_endpoints) {
            self.by_address.entry(address.clone()).or_default().insert(name.clone());
        }
        self.by_name.insert(name.clone(), pod);
    }
}

/// Everything of one namespace. What lookups need is behind an `Arc`, shared with the directory of a snapshot.
#[derive(Debug, Default)]
pub struct Space {
    /// Labels of the namespace object, if there is one.
    pub labels: Option<Labels>,
    /// Its annotations.
    pub annotations: Labels,
    /// Service objects.
    pub service_objects: HashMap<Arc<str>, Arc<Config>>,
    /// Pod objects.
    pub pod_objects: HashMap<Arc<str>, Arc<Config>>,
    /// EndpointSlice objects.
    pub slice_objects: HashMap<Arc<str>, Arc<Config>>,
    /// EndpointSlices by Service, then by name.
    pub slices: HashMap<Arc<str>, BTreeMap<Arc<str>, Arc<Config>>>,
    /// Services whose slices name this pod or this address.
    pub refs: HashMap<Arc<str>, BTreeSet<Name>>,
    /// Services.
    pub services: Arc<Services>,
    /// Pods.
    pub pods: Arc<Pods>,
    /// WorkloadEntries.
    pub workloads: Arc<Workloads>,
}

impl Space {
    /// Nothing of the namespace is known any more.
    pub fn is_empty(&self) -> bool {
        self.labels.is_none()
            && self.annotations.is_empty()
            && self.service_objects.is_empty()
            && self.pod_objects.is_empty()
            && self.slice_objects.is_empty()
            && self.refs.is_empty()
            && self.services.units.is_empty()
            && self.pods.by_name.is_empty()
            && self.workloads.is_empty()
    }
}

/// Why a service has to be computed again.
#[derive(Debug, Clone, Copy, Default)]
pub struct Causes {
    /// The Service object came, changed or went, or something that it inherits did.
    pub service: bool,
    /// A slice, a WorkloadEntry, or a pod that a slice was waiting for.
    pub endpoints: bool,
    /// A pod of it changed its labels.
    pub relabelled: bool,
}

/// One service that was computed again.
#[derive(Debug)]
pub struct Flushed {
    /// Why.
    pub causes: Causes,
    /// Before.
    pub old: Option<Arc<Unit>>,
    /// Now.
    pub new: Option<Arc<Unit>>,
}

impl Flushed {
    /// The endpoints of a unit, listed ones first.
    pub fn endpoints(unit: Option<&Arc<Unit>>) -> Vec<Arc<Endpoint>> {
        unit.map(|u| u.listed.iter().chain(&u.selected).cloned().collect()).unwrap_or_default()
    }

    /// What happened to the service itself.
    pub fn event(&self) -> EventKind {
        match (&self.old, &self.new) {
            (None, _) => EventKind::Add,
            (_, None) => EventKind::Delete,
            _ => EventKind::Update,
        }
    }
}
