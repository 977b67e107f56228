//! Endpoints, their shards, and the endpoint index by service.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{Hash, Hasher},
    sync::Arc,
};

use super::{Hostname, LabelSet};

/// The locality of an endpoint or proxy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, serde::Serialize)]
pub struct Locality {
    /// Region, as in `topology.kubernetes.io/region`.
    pub region: Arc<str>,
    /// Zone, as in `topology.kubernetes.io/zone`.
    pub zone: Arc<str>,
    /// Sub-zone, as in `topology.istio.io/subzone`.
    pub subzone: Arc<str>,
}

impl Locality {
    /// Parses `region/zone/subzone`; missing parts are empty.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut parts = text.splitn(3, '/').map(Arc::from);
        Self {
            region: parts.next().unwrap_or_default(),
            zone: parts.next().unwrap_or_default(),
            subzone: parts.next().unwrap_or_default(),
        }
    }

    /// `region/zone/subzone` without trailing empty parts.
    #[must_use]
    pub fn label(&self) -> String {
        let mut text = self.region.to_string();
        if !self.zone.is_empty() || !self.subzone.is_empty() {
            text.push('/');
            text.push_str(&self.zone);
        }
        if !self.subzone.is_empty() {
            text.push('/');
            text.push_str(&self.subzone);
        }
        text
    }

    /// Whether all parts are empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.region.is_empty() && self.zone.is_empty() && self.subzone.is_empty()
    }
}

/// The health of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize)]
pub enum HealthStatus {
    /// Unknown: endpoints of ServiceEntries and WorkloadEntries, which have no health report. They get traffic.
    #[default]
    Unknown,
    /// Ready for traffic.
    Healthy,
    /// Not ready for traffic.
    UnHealthy,
    /// Terminating while still serving; persistent sessions may stay.
    Draining,
    /// Terminating, without persistent sessions to keep.
    Terminating,
}

/// One address and port of a service (Istio's `IstioEndpoint`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, serde::Serialize)]
pub struct Endpoint {
    /// IPs, or a host name, or the path of a Unix socket (with port 0). The first one identifies the endpoint.
    pub addresses: Vec<Arc<str>>,
    /// Port that the workload listens on.
    pub port: u32,
    /// Name of the service port of the endpoint.
    pub service_port_name: Arc<str>,
    /// Number of the service port where the name is not enough (ServiceEntry); else 0.
    pub legacy_cluster_port_key: u32,
    /// Labels of the workload.
    pub labels: Arc<LabelSet>,
    /// SPIFFE URI of the service account; empty when unknown.
    pub service_account: Arc<str>,
    /// Network id; empty for the default network.
    pub network: Arc<str>,
    /// Locality of the workload.
    pub locality: Locality,
    /// Whether the locality is written with all three parts, empty ones included, as that of a node. Istio groups `r/z/` and
    /// `r/z` as two localities, though Envoy receives the same for both.
    #[serde(skip)]
    pub locality_is_padded: bool,
    /// Cluster id of the registry that reports the endpoint.
    pub cluster: Arc<str>,
    /// Load balancing weight as written; 0 when unset.
    pub lb_weight: u32,
    /// TLS mode of the workload: `istio` or `disabled`.
    pub tls_mode: Arc<str>,
    /// Namespace of the workload.
    pub namespace: Arc<str>,
    /// Name of the workload.
    pub workload_name: Arc<str>,
    /// Host name of the pod.
    pub hostname: Arc<str>,
    /// Sub-domain of the pod.
    pub subdomain: Arc<str>,
    /// Health of the endpoint.
    pub health: HealthStatus,
    /// Whether the endpoint is sent to proxies while unhealthy.
    pub send_unhealthy: bool,
    /// Node of the pod.
    pub node_name: Arc<str>,
}

/// The identity of a shard, `provider/cluster`: the registry that reports its endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardKey {
    /// Type of the registry: `Kubernetes` or `External`.
    pub provider: super::Registry,
    /// Cluster id of the registry.
    pub cluster: Arc<str>,
}

/// The endpoints of one service, by shard.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EndpointSet {
    /// Endpoints by shard, in key order. Nearly always there is one shard.
    pub shards: Vec<(ShardKey, Arc<[Arc<Endpoint>]>)>,
    /// Service accounts of the endpoints of all shards.
    pub service_accounts: BTreeSet<Arc<str>>,
    /// Hash of the content: equal stamps mean equal sets.
    pub stamp: u64,
}

impl EndpointSet {
    /// Builds the set from shards and collects the service accounts of their endpoints.
    #[must_use]
    pub fn of(shards: Vec<(ShardKey, Arc<[Arc<Endpoint>]>)>) -> Self {
        let accounts = shards.iter().flat_map(|(_, s)| s.iter()).map(|e| e.service_account.clone());
        let service_accounts = accounts.filter(|a| !a.is_empty()).collect();
        let mut set = Self { shards, service_accounts, stamp: 0 };
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        set.shards.hash(&mut hasher);
        set.service_accounts.hash(&mut hasher);
        set.stamp = hasher.finish().max(1);
        set
    }

    /// A copy of the shards with one of them replaced or removed, and the previous endpoints of that shard.
    #[must_use]
    pub fn shards_with(
        &self,
        key: &ShardKey,
        endpoints: Option<Arc<[Arc<Endpoint>]>>,
    ) -> (Vec<(ShardKey, Arc<[Arc<Endpoint>]>)>, Option<Arc<[Arc<Endpoint>]>>) {
        let mut shards = Vec::with_capacity(self.shards.len() + 1);
        shards.extend(self.shards.iter().filter(|(k, _)| k != key).cloned());
        if let Some(endpoints) = endpoints {
            shards.insert(shards.partition_point(|(k, _)| k < key), (key.clone(), endpoints));
        }
        shards.shrink_to_fit();
        (shards, self.shards.iter().find(|(k, _)| k == key).map(|(_, endpoints)| endpoints.clone()))
    }

    /// All endpoints, shard by shard in key order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        self.shards.iter().flat_map(|(_, s)| s.iter())
    }
}

/// The endpoint index by service `(host, namespace)`. Cheap to clone: the values are shared.
#[derive(Debug, Clone, Default)]
pub struct EndpointIndex {
    /// Endpoint sets by host and namespace.
    pub by_service: HashMap<(Hostname, Arc<str>), Arc<EndpointSet>>,
}

impl EndpointIndex {
    /// The endpoint set of a service.
    #[must_use]
    pub fn get(&self, host: &Hostname, namespace: &Arc<str>) -> Option<&Arc<EndpointSet>> {
        self.by_service.get(&(host.clone(), namespace.clone()))
    }
}

/// A workload that services can select: a Pod or a WorkloadEntry (Istio's `WorkloadInstance`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkloadInstance {
    /// Name of the Pod or WorkloadEntry.
    pub name: Arc<str>,
    /// Namespace of the Pod or WorkloadEntry.
    pub namespace: Arc<str>,
    /// True for a pod, false for a WorkloadEntry.
    pub pod: bool,
    /// The endpoint; its port and service port name are still unset.
    pub endpoint: Endpoint,
    /// Port numbers by name (WorkloadEntry `ports`, or the pod's container ports).
    pub port_map: BTreeMap<String, u32>,
    /// The address is a host name: only ServiceEntries with DNS resolution may use the workload.
    pub dns_service_entry_only: bool,
}
