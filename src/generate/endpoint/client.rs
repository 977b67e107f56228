//! The client of endpoints: the properties of a proxy that select its endpoints, besides its place.

use std::{
    hash::{Hash, Hasher},
    net::IpAddr,
    sync::Arc,
};

use crate::{
    model::{Endpoint, Labels, NodeType},
    push::ProxyView,
};

/// The properties of a proxy that decide which endpoints it gets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EndpointClient {
    /// Sidecar, router, …
    pub node_type: NodeType,
    /// Its network; empty is the default one.
    pub network: Arc<str>,
    /// Its cluster.
    pub cluster: Arc<str>,
    /// Networks that it wants to see; empty is all.
    pub visible_networks: Vec<Arc<str>>,
    /// Has an IPv4 address.
    pub ipv4: bool,
    /// Has an IPv6 address.
    pub ipv6: bool,
    /// Is proxyless gRPC: it refuses a load assignment that names an address twice, and resolves one DNS name of a cluster.
    pub proxyless: bool,
    /// Counts, so that endpoints tell it about themselves.
    pub counts: bool,
    stamp: u64,
}

impl EndpointClient {
    /// The client that a view stands for.
    #[must_use]
    pub fn of(view: &ProxyView) -> Self {
        let mut client = Self {
            node_type: view.node_type,
            network: view.network.clone(),
            cluster: view.cluster_id.clone(),
            visible_networks: view.metadata.requested_network_view.clone(),
            ipv4: view.ipv4,
            ipv6: view.ipv6,
            proxyless: &*view.metadata.generator == "grpc",
            counts: view.counts,
            stamp: 0,
        };
        let mut hasher = xxhash_rust::xxh3::Xxh3Default::new();
        client.hash(&mut hasher);
        client.stamp = hasher.finish();
        client
    }

    /// Hash of the content: equal stamps mean equal clients.
    #[must_use]
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Wants to see endpoints of that network.
    #[must_use]
    pub fn sees(&self, network: &str) -> bool {
        self.visible_networks.is_empty() || network.is_empty() || self.visible_networks.iter().any(|n| **n == *network)
    }

    /// Is in that network; an empty network on either side is every network.
    #[must_use]
    pub fn in_network(&self, network: &str) -> bool {
        network.is_empty() || self.network.is_empty() || *self.network == *network
    }

    /// Can reach an address of its family. A proxy that has both or none is not restricted.
    #[must_use]
    pub fn reaches(&self, address: &str) -> bool {
        if self.ipv4 == self.ipv6 {
            return true;
        }
        match address.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
            Ok(IpAddr::V4(_)) => self.ipv4,
            Ok(IpAddr::V6(_)) => self.ipv6,
            Err(_) => false,
        }
    }
}

/// The labels of a proxy with those of its topology added (Istio's `AugmentLabels`); its own network label stays.
#[must_use]
pub fn proxy_labels(view: &ProxyView) -> Labels {
    let mut labels = view.labels.clone();
    let mut add = |key: &str, value: &str| {
        if !value.is_empty() {
            labels.insert(key.to_string(), value.to_string());
        }
    };
    add("topology.kubernetes.io/region", &view.locality.region);
    add("topology.kubernetes.io/zone", &view.locality.zone);
    add("topology.istio.io/subzone", &view.locality.subzone);
    add("topology.istio.io/cluster", &view.cluster_id);
    add("kubernetes.io/hostname", &view.metadata.node_name);
    if labels.get("topology.istio.io/network").is_none_or(String::is_empty) && !view.network.is_empty() {
        labels.insert("topology.istio.io/network".to_string(), view.network.to_string());
    }
    labels
}

/// Name and revision of the canonical service of a workload (Istio's `CanonicalService`); an unknown revision is empty.
pub(crate) fn canonical_service(endpoint: &Endpoint) -> (&str, &str) {
    let label = |keys: &[&str]| keys.iter().find_map(|k| endpoint.labels.get(k));
    let name = label(&["service.istio.io/canonical-name", "app.kubernetes.io/name", "app"]);
    let revision = label(&["service.istio.io/canonical-revision", "app.kubernetes.io/version", "version"]);
    (name.unwrap_or(&endpoint.workload_name), revision.filter(|r| *r != "latest").unwrap_or_default())
}
