//! Snapshots published by the store and the registry, and the inputs of the push context. Immutable, shared, cheap to clone.

use std::{
    any::Any,
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
};

use super::{
    Config, EndpointIndex, Features, Kind, Labels, Locality, Mesh, MovedNodes, Node, SecretAccess, Service,
    ServiceTarget, WorkloadCertificates, difference, key_set::KeySets, trust_anchors::Anchors,
};

/// All effective configs by kind, oldest first (then by name and namespace).
#[derive(Debug, Clone, Default)]
pub struct ConfigSnapshot {
    /// Lists by kind; a kind without objects may be absent. An unchanged kind keeps its `Arc` across snapshots.
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

/// A workload that the registry finds by IP: a Pod or a WorkloadEntry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Workload {
    /// Name of the Pod or WorkloadEntry.
    pub name: Arc<str>,
    /// Namespace of the Pod or WorkloadEntry.
    pub namespace: Arc<str>,
    /// Labels of the workload.
    pub labels: Labels,
    /// Locality of the workload; may be empty.
    pub locality: Locality,
    /// Name of the service account.
    pub service_account: Arc<str>,
}

/// Lookups of the workload of a proxy that need more of the proxy than its addresses.
pub trait WorkloadDirectory: Any + std::fmt::Debug + Send + Sync {
    /// The service ports of the proxy's workload, Kubernetes Services first.
    fn targets_of(&self, node: &Node) -> Vec<ServiceTarget>;

    /// The workload of the proxy.
    fn workload_of(&self, node: &Node) -> Option<Workload>;

    /// Proxies for which the lookups may differ from those of an earlier directory.
    fn moved_since(&self, before: &dyn WorkloadDirectory) -> MovedNodes;
}

/// Addresses by host name, each list sorted by family and number.
pub type ResolvedNames = BTreeMap<Arc<str>, Vec<IpAddr>>;

/// The services and endpoints of the registry at one moment.
#[derive(Debug, Clone, Default)]
pub struct RegistrySnapshot {
    /// All services, oldest first (creation time, then name, then namespace: Istio's `SortServicesByCreationTime`).
    pub services: Arc<Vec<Arc<Service>>>,
    /// The endpoint index.
    pub endpoints: Arc<EndpointIndex>,
    /// Service ports by workload IP, in addition to those of the directory.
    pub targets: Arc<HashMap<Arc<str>, Arc<[ServiceTarget]>>>,
    /// Workloads by IP, for proxies whose workload the directory does not know.
    pub workloads: Arc<HashMap<Arc<str>, Workload>>,
    /// Lookups of workloads in the registries; `None` for an in-memory registry.
    pub directory: Option<Arc<dyn WorkloadDirectory>>,
    /// Addresses of host names that gateways between networks have.
    pub names: Arc<ResolvedNames>,
    /// Key sets that were fetched for RequestAuthentications.
    pub keys: Arc<KeySets>,
}

impl RegistrySnapshot {
    /// The service ports of the proxy's own workload (Istio's `GetProxyServiceTargets`), oldest service first, then by host.
    #[must_use]
    pub fn targets_of(&self, node: &Node) -> Vec<ServiceTarget> {
        let mut targets = self.directory.as_ref().map(|d| d.targets_of(node)).unwrap_or_default();
        targets.extend(node.ips.iter().filter_map(|ip| self.targets.get(ip)).flat_map(|t| t.iter().cloned()));
        let order = |s: &Service| (s.creation_time, s.hostname.clone());
        targets.sort_by_key(|a| order(&a.service));
        targets
    }

    /// The registry's data of the proxy's workload.
    #[must_use]
    pub fn workload_of(&self, node: &Node) -> Option<Workload> {
        let known = self.directory.as_ref().and_then(|d| d.workload_of(node));
        known.or_else(|| node.ips.iter().find_map(|ip| self.workloads.get(ip)).cloned())
    }

    /// Proxies whose own services, labels or locality may differ from those of an earlier snapshot.
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

/// Whether two lists of a proxy's own services are equal.
fn same_targets(a: &[ServiceTarget], b: &[ServiceTarget]) -> bool {
    let same = |(a, b): (&ServiceTarget, &ServiceTarget)| {
        a.service.stamp == b.service.stamp && a.port == b.port && a.target_port == b.target_port
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// The inputs of a push context.
#[derive(Debug, Clone, Default)]
pub struct PushInputs {
    /// Certificates that were issued for connected workloads.
    pub certificates: Arc<WorkloadCertificates>,
    /// Root certificates of `caCertificates`, where the mesh has several roots.
    pub anchors: Anchors,
    /// The service accounts that may read Secrets of the cluster.
    pub secret_access: Arc<SecretAccess>,
    /// Effective mesh settings.
    pub mesh: Arc<Mesh>,
    /// Istio's feature flags.
    pub features: Arc<Features>,
    /// Effective configs, by kind.
    pub configs: ConfigSnapshot,
    /// State of the registry: services, endpoints, workloads.
    pub registry: RegistrySnapshot,
}
