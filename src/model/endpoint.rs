//! Endpoints, their shards, and the index of them by service.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{Hash, Hasher},
    sync::Arc,
};

use super::{Hostname, LabelSet};

/// Where an endpoint is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, serde::Serialize)]
pub struct Locality {
    /// Region.
    pub region: Arc<str>,
    /// Zone.
    pub zone: Arc<str>,
    /// Sub-zone.
    pub subzone: Arc<str>,
}

impl Locality {
    /// Reads `region/zone/subzone`; missing parts are empty.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut parts = text.splitn(3, '/').map(Arc::from);
        Self {
            region: parts.next().unwrap_or_default(),
            zone: parts.next().unwrap_or_default(),
            subzone: parts.next().unwrap_or_default(),
        }
    }

    /// `region/zone/subzone` with empty tails left out.
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

    /// No part is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.region.is_empty() && self.zone.is_empty() && self.subzone.is_empty()
    }
}

/// Whether an endpoint may get traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize)]
pub enum HealthStatus {
    /// Nobody says: endpoints of ServiceEntries and WorkloadEntries. They get traffic.
    #[default]
    Unknown,
    /// Ready.
    Healthy,
    /// Not ready.
    UnHealthy,
    /// Going away; existing sessions may stay.
    Draining,
    /// Gone.
    Terminating,
}

/// One address and port of a service (Istio's `IstioEndpoint`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, serde::Serialize)]
pub struct Endpoint {
    /// IPs (or a host name, or a socket path for `unix://` with port 0); the first is the key.
    pub addresses: Vec<Arc<str>>,
    /// Port that the workload listens on.
    pub port: u32,
    /// Name of the service port that it serves.
    pub service_port_name: Arc<str>,
    /// Number of the service port, where the name alone is not enough (ServiceEntry); else 0.
    pub legacy_cluster_port_key: u32,
    /// Workload labels.
    pub labels: Arc<LabelSet>,
    /// SPIFFE URI; empty when unknown.
    pub service_account: Arc<str>,
    /// Network; empty is the default one.
    pub network: Arc<str>,
    /// Where it is.
    pub locality: Locality,
    /// The locality is written with all three parts, empty ones too, as that of a node is. To Istio `r/z/` and `r/z` are two
    /// localities when it groups endpoints, though Envoy is told the same of both.
    #[serde(skip)]
    pub locality_is_padded: bool,
    /// Cluster id of the registry that reported it.
    pub cluster: Arc<str>,
    /// Weight as written; 0 means unset.
    pub lb_weight: u32,
    /// `istio` or `disabled`.
    pub tls_mode: Arc<str>,
    /// Namespace of the workload.
    pub namespace: Arc<str>,
    /// Name of the workload.
    pub workload_name: Arc<str>,
    /// Host name of the pod.
    pub hostname: Arc<str>,
    /// Sub-domain of the pod.
    pub subdomain: Arc<str>,
    /// Health.
    pub health: HealthStatus,
    /// Send it also while it is not healthy.
    pub send_unhealthy: bool,
    /// Node that the pod runs on.
    pub node_name: Arc<str>,
}

/// Who reported endpoints: `provider/cluster`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardKey {
    /// `Kubernetes` or `External`.
    pub provider: super::Registry,
    /// Cluster id.
    pub cluster: Arc<str>,
}

/// The endpoints of one service, by shard.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EndpointSet {
    /// Endpoints by who reported them, in order. Nearly always it is one.
    pub shards: Vec<(ShardKey, Arc<[Arc<Endpoint>]>)>,
    /// Service accounts over all shards.
    pub service_accounts: BTreeSet<Arc<str>>,
    /// Hash of the content: equal stamps mean equal sets.
    pub stamp: u64,
}

impl EndpointSet {
    /// The set of these shards, with the service accounts of their endpoints.
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

    /// The shards with one of them replaced, or taken out; and what it was.
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

/// Endpoints by service `(host, namespace)`. Cheap to clone: the values are shared.
#[derive(Debug, Clone, Default)]
pub struct EndpointIndex {
    /// The sets.
    pub by_service: HashMap<(Hostname, Arc<str>), Arc<EndpointSet>>,
}

impl EndpointIndex {
    /// The endpoints of a service.
    #[must_use]
    pub fn get(&self, host: &Hostname, namespace: &Arc<str>) -> Option<&Arc<EndpointSet>> {
        self.by_service.get(&(host.clone(), namespace.clone()))
    }
}

/// A workload that services can select: a pod or a WorkloadEntry (Istio's `WorkloadInstance`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkloadInstance {
    /// Object name.
    pub name: Arc<str>,
    /// Object namespace.
    pub namespace: Arc<str>,
    /// True for a pod, false for a WorkloadEntry.
    pub pod: bool,
    /// The endpoint, its port and service port name still open.
    pub endpoint: Endpoint,
    /// Ports by name (WorkloadEntry `ports`, or the pod's container ports).
    pub port_map: BTreeMap<String, u32>,
    /// Address is a host name: only DNS ServiceEntries may use it.
    pub dns_service_entry_only: bool,
}
