//! One namespace of a cluster: its objects, and the services, Pods and workloads converted from them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{pod::Pod, service::PortTarget};
use crate::{
    model::{Config, Endpoint, EventKind, Labels, Service, WorkloadInstance, difference},
    registry::selectors::{LabelledWorkloads, SelectorIndex},
};

/// Namespace and name.
pub type Name = (Arc<str>, Arc<str>);

/// A Pod before and after a change.
pub type Moved = (Option<Arc<Pod>>, Option<Arc<Pod>>);

/// WorkloadEntries by address, then by name.
pub type ByAddress = HashMap<Arc<str>, BTreeMap<Name, Arc<WorkloadInstance>>>;

/// A Service with its endpoints.
#[derive(Debug, Clone)]
pub struct Unit {
    /// The converted service.
    pub service: Arc<Service>,
    /// Ports with their target ports.
    pub ports: Vec<PortTarget>,
    /// Endpoints from its slices.
    pub listed: Vec<Arc<Endpoint>>,
    /// Endpoints from the WorkloadEntries that it selects.
    pub selected: Vec<Arc<Endpoint>>,
}

/// The Services of a namespace.
#[derive(Debug, Clone, Default)]
pub struct Services {
    /// Services by name.
    pub units: BTreeMap<Arc<str>, Arc<Unit>>,
    /// Service names by selector.
    pub selectors: Arc<SelectorIndex<Arc<str>>>,
}

/// The pods of a namespace.
#[derive(Debug, Clone, Default)]
pub struct Pods {
    by_name: HashMap<Arc<str>, Arc<Pod>>,
    by_address: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl Pods {
    /// The Pod with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Pod>> {
        self.by_name.get(name)
    }

    /// Names of Pods that differ from an earlier state of the namespace.
    pub fn moved_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a Arc<str>> {
        let same = |a: &Arc<Pod>, b: &Arc<Pod>| Arc::ptr_eq(a, b) || a == b;
        difference::of_maps(&before.by_name, &self.by_name, same).into_iter().map(|(name, ..)| name)
    }

    /// The ready Pod with this address; of several the first by name.
    pub fn by_address(&self, address: &str) -> Option<&Arc<Pod>> {
        self.by_address.get(address)?.first().and_then(|name| self.by_name.get(name))
    }

    /// Sets or removes (`None`) a Pod.
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

/// The state of one namespace. Fields that lookups need are behind an `Arc`, shared with the directory of a snapshot.
#[derive(Debug, Default)]
pub struct Space {
    /// Labels of the Namespace object; `None` when there is none.
    pub labels: Option<Labels>,
    /// Annotations of the Namespace object.
    pub annotations: Labels,
    /// Service objects by name.
    pub service_objects: HashMap<Arc<str>, Arc<Config>>,
    /// Pod objects by name.
    pub pod_objects: HashMap<Arc<str>, Arc<Config>>,
    /// EndpointSlice objects by name.
    pub slice_objects: HashMap<Arc<str>, Arc<Config>>,
    /// EndpointSlices by Service, then by name.
    pub slices: HashMap<Arc<str>, BTreeMap<Arc<str>, Arc<Config>>>,
    /// Services whose slices refer to this Pod name or address.
    pub refs: HashMap<Arc<str>, BTreeSet<Name>>,
    /// Converted Services.
    pub services: Arc<Services>,
    /// Converted Pods.
    pub pods: Arc<Pods>,
    /// Converted WorkloadEntries.
    pub workloads: Arc<LabelledWorkloads>,
}

impl Space {
    /// Whether the namespace has no objects left.
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

/// The causes for which a service is recomputed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Causes {
    /// The Service object, or a setting that it inherits, was added, changed or deleted.
    pub service: bool,
    /// A slice or WorkloadEntry changed, or a Pod that a slice referred to appeared.
    pub endpoints: bool,
    /// A Pod of the service changed its labels.
    pub relabelled: bool,
}

/// One recomputed service.
#[derive(Debug)]
pub struct Flushed {
    /// The causes of the recomputation.
    pub causes: Causes,
    /// The service before; `None` when it is new.
    pub old: Option<Arc<Unit>>,
    /// The service now; `None` when it is deleted.
    pub new: Option<Arc<Unit>>,
}

impl Flushed {
    /// The endpoints of a service, those from slices first.
    pub fn endpoints(unit: Option<&Arc<Unit>>) -> Vec<Arc<Endpoint>> {
        unit.map(|u| u.listed.iter().chain(&u.selected).cloned().collect()).unwrap_or_default()
    }

    /// The type of the change of the service itself.
    pub fn event(&self) -> EventKind {
        match (&self.old, &self.new) {
            (None, _) => EventKind::Add,
            (_, None) => EventKind::Delete,
            _ => EventKind::Update,
        }
    }
}
