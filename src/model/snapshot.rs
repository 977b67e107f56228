//! What the store and the registry publish: immutable, shared, cheap to clone. The push context is built from these two.

use std::{
    any::Any,
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
};

use super::{
    Config, EndpointIndex, Features, Kind, Labels, Locality, Mesh, MovedNodes, Node, Service, ServiceTarget, difference,
};

/// All effective configs by kind, oldest first (then name, then namespace).
#[derive(Debug, Clone, Default)]
pub struct ConfigSnapshot {
    /// Lists by kind; a kind without objects may be absent. An unchanged kind keeps its `Arc` from one snapshot to the next.
    pub by_kind: BTreeMap<Kind, Arc<Vec<Arc<Config>>>>,
}

impl ConfigSnapshot {
    /// Builds a snapshot from configs in any order.
    #[must_use]
    pub fn of(configs: impl IntoIterator<Item = Arc<Config>>) -> Self {
        let mut lists: BTreeMap<Kind, Vec<Arc<Config>>> = BTreeMap::new();
        for config in configs {
            lists.entry(config.kind()).or_default().push(config);
        }
        let by_kind = lists
            .into_iter()
            .map(|(kind, mut list)| {
                list.sort_by(|a, b| a.age_order().cmp(&b.age_order()));
                (kind, Arc::new(list))
            })
            .collect();
        Self { by_kind }
    }

    /// The configs of a kind, oldest first.
    #[must_use]
    pub fn list(&self, kind: Kind) -> &[Arc<Config>] {
        self.by_kind.get(&kind).map_or(&[], |l| l.as_slice())
    }
}

/// A workload that the registry knows by IP: a pod or a WorkloadEntry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Workload {
    /// Object name.
    pub name: Arc<str>,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Labels.
    pub labels: Labels,
    /// Locality; may be empty.
    pub locality: Locality,
    /// Service account name.
    pub service_account: Arc<str>,
}

/// Answers about the workload behind a proxy that need more of the proxy than its addresses.
pub trait WorkloadDirectory: Any + std::fmt::Debug + Send + Sync {
    /// The services that the proxy's workload serves, Kubernetes Services first.
    fn targets_of(&self, node: &Node) -> Vec<ServiceTarget>;

    /// The proxy's workload.
    fn workload_of(&self, node: &Node) -> Option<Workload>;

    /// Proxies for which the answers may differ from those of an earlier directory.
    fn moved_since(&self, before: &dyn WorkloadDirectory) -> MovedNodes;
}

/// Addresses by host name, each list sorted by family and number.
pub type ResolvedNames = BTreeMap<Arc<str>, Vec<IpAddr>>;

/// What the registry knows.
#[derive(Debug, Clone, Default)]
pub struct RegistrySnapshot {
    /// All services, oldest first (creation time, then name, then namespace: Istio's `SortServicesByCreationTime`).
    pub services: Arc<Vec<Arc<Service>>>,
    /// Endpoints by service.
    pub endpoints: Arc<EndpointIndex>,
    /// Services that the workload with this IP serves, where no directory says more.
    pub targets: Arc<HashMap<Arc<str>, Arc<[ServiceTarget]>>>,
    /// Workloads by IP, where no directory says more.
    pub workloads: Arc<HashMap<Arc<str>, Workload>>,
    /// Workloads of the registries.
    pub directory: Option<Arc<dyn WorkloadDirectory>>,
    /// Addresses of host names that gateways between networks have.
    pub names: Arc<ResolvedNames>,
}

impl RegistrySnapshot {
    /// The services that the proxy itself serves (Istio's `GetProxyServiceTargets`), oldest service first, then by host.
    #[must_use]
    pub fn targets_of(&self, node: &Node) -> Vec<ServiceTarget> {
        let mut targets = self.directory.as_ref().map(|d| d.targets_of(node)).unwrap_or_default();
        targets.extend(node.ips.iter().filter_map(|ip| self.targets.get(ip)).flat_map(|t| t.iter().cloned()));
        let order = |s: &Service| (s.creation_time, s.hostname.clone());
        targets.sort_by_key(|a| order(&a.service));
        targets
    }

    /// What the registry knows of the proxy's workload.
    #[must_use]
    pub fn workload_of(&self, node: &Node) -> Option<Workload> {
        let known = self.directory.as_ref().and_then(|d| d.workload_of(node));
        known.or_else(|| node.ips.iter().find_map(|ip| self.workloads.get(ip)).cloned())
    }

    /// Proxies whose own services, labels or locality may differ from what an earlier snapshot says.
    #[must_use]
    pub fn moved_since(&self, before: &Self) -> MovedNodes {
        let mut moved = match (&before.directory, &self.directory) {
            (None, None) => MovedNodes::default(),
            (Some(before), Some(now)) if Arc::ptr_eq(before, now) => MovedNodes::default(),
            (Some(before), Some(now)) => now.moved_since(&**before),
            _ => MovedNodes::all(),
        };
        let same = |a: &Arc<[ServiceTarget]>, b: &Arc<[ServiceTarget]>| Arc::ptr_eq(a, b) || same_targets(a, b);
        let targets = difference::of_maps(&before.targets, &self.targets, same);
        let workloads = difference::of_maps(&before.workloads, &self.workloads, |a, b| a == b);
        let addresses = targets.into_iter().map(|(ip, ..)| ip).chain(workloads.into_iter().map(|(ip, ..)| ip));
        moved.addresses.extend(addresses.cloned());
        moved
    }
}

/// Whether both lists say the same of a proxy's own services.
fn same_targets(a: &[ServiceTarget], b: &[ServiceTarget]) -> bool {
    let same = |(a, b): (&ServiceTarget, &ServiceTarget)| {
        a.service.stamp == b.service.stamp && a.port == b.port && a.target_port == b.target_port
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// What a push context is built from.
#[derive(Debug, Clone, Default)]
pub struct PushInputs {
    /// Mesh settings.
    pub mesh: Arc<Mesh>,
    /// Feature flags.
    pub features: Arc<Features>,
    /// Effective configs.
    pub configs: ConfigSnapshot,
    /// Services, endpoints, workloads.
    pub registry: RegistrySnapshot,
}
