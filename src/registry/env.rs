//! Settings that all conversions of the registry read besides the object: mesh settings, feature flags, networks.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use ipnet::IpNet;

use crate::{
    model::{Features, Labels, Locality, Mesh},
    proto::mesh::network::network_endpoints::Ne,
};

/// Names of labels and annotations that the registry reads or writes.
pub mod names {
    /// Overrides the TLS mode of a workload.
    pub const TLS_MODE: &str = "security.istio.io/tlsMode";
    /// Network of a workload, of a gateway Service, or of a cluster (on the root namespace).
    pub const NETWORK: &str = "topology.istio.io/network";
    /// Cluster of a workload.
    pub const CLUSTER: &str = "topology.istio.io/cluster";
    /// Sub-zone of a node or workload.
    pub const SUBZONE: &str = "topology.istio.io/subzone";
    /// Zone of a node or workload.
    pub const ZONE: &str = "topology.kubernetes.io/zone";
    /// Region of a node or workload.
    pub const REGION: &str = "topology.kubernetes.io/region";
    /// Node that a workload runs on.
    pub const HOSTNAME: &str = "kubernetes.io/hostname";
    /// Key of the trust domain in the mesh settings of another cluster.
    pub const TRUST_DOMAIN: &str = "trustDomain";
    /// Workload name that wins over the derived one.
    pub const WORKLOAD_NAME: &str = "service.istio.io/workload-name";
    /// `PreferClose`, `PreferSameZone` or `PreferSameNode`, on a Service, ServiceEntry or Namespace.
    pub const TRAFFIC_DISTRIBUTION: &str = "networking.istio.io/traffic-distribution";
}

/// The effective settings.
#[derive(Debug, Clone, Default)]
pub struct Env {
    /// Mesh settings of the main cluster.
    pub mesh: Arc<Mesh>,
    /// Istio's feature flags.
    pub features: Arc<Features>,
    /// `fromCidr` of mesh networks, by network name.
    cidrs: Vec<(IpNet, Arc<str>)>,
    /// `fromRegistry` of mesh networks, by cluster.
    registries: BTreeMap<String, Arc<str>>,
    /// Trust domains of other clusters, by cluster, where they have mesh settings of their own.
    trust_domains: BTreeMap<Arc<str>, Arc<str>>,
}

impl Env {
    /// Indexes the mesh networks of the settings.
    pub fn new(mesh: Arc<Mesh>, features: Arc<Features>) -> Self {
        let mut env = Self { mesh, features, ..Self::default() };
        for (name, network) in &env.mesh.networks.networks {
            let name: Arc<str> = name.as_str().into();
            for endpoints in network.endpoints.iter().filter_map(|e| e.ne.as_ref()) {
                match endpoints {
                    Ne::FromCidr(cidr) => env.cidrs.extend(cidr.parse().ok().map(|c| (c, name.clone()))),
                    Ne::FromRegistry(cluster) => {
                        env.registries.entry(cluster.clone()).or_insert_with(|| name.clone());
                    }
                }
            }
        }
        env.cidrs.sort_by(|(a, x), (b, y)| (a.prefix_len(), x).cmp(&(b.prefix_len(), y)));
        env
    }

    /// The cluster id of an object's origin; an empty one means the main cluster.
    pub fn cluster(&self, origin: &Arc<str>) -> Arc<str> {
        if origin.is_empty() { self.mesh.cluster_id.clone() } else { origin.clone() }
    }

    /// Sets the trust domain of another cluster, or removes it (`None`). Returns whether it changed.
    pub fn set_trust_domain(&mut self, cluster: &Arc<str>, domain: Option<Arc<str>>) -> bool {
        match domain {
            Some(domain) => self.trust_domains.insert(cluster.clone(), domain.clone()) != Some(domain),
            None => self.trust_domains.remove(cluster).is_some(),
        }
    }

    /// The SPIFFE URI of a service account, in the trust domain of its cluster, else in the mesh's.
    pub fn spiffe(&self, cluster: &str, namespace: &str, account: &str) -> String {
        let domain = self.trust_domains.get(cluster).map_or(self.mesh.config.trust_domain.as_str(), |domain| domain);
        let domain = domain.replace('@', ".");
        format!("spiffe://{domain}/ns/{namespace}/sa/{account}")
    }

    /// The network that mesh networks assign to an address of a cluster: by the cluster, else by the widest matching CIDR.
    pub fn network(&self, cluster: &str, address: &str) -> Option<Arc<str>> {
        if let Some(network) = self.registries.get(cluster) {
            return Some(network.clone());
        }
        let address: IpAddr = address.parse().ok()?;
        self.cidrs.iter().find(|(cidr, _)| cidr.contains(&address)).map(|(_, name)| name.clone())
    }
}

/// Parses a locality; parts after the third are ignored.
pub fn parse_locality(text: &str) -> Locality {
    let mut parts = text.split('/').map(Arc::from);
    let mut next = || parts.next().unwrap_or_default();
    Locality { region: next(), zone: next(), subzone: next() }
}

/// Whether a locality is written with all its parts, empty ones too.
pub fn is_padded(locality: &str) -> bool {
    locality.matches('/').count() > 1
}

/// Labels with topology added (Istio's `AugmentLabels`): locality, cluster and node always, the network if absent.
pub fn augment_labels(labels: &Labels, cluster: &str, locality: &Locality, node: &str, network: &str) -> Labels {
    let mut out = labels.clone();
    let mut set = |key: &str, value: &str| {
        if !value.is_empty() {
            out.insert(key.to_string(), value.to_string());
        }
    };
    set(names::REGION, &locality.region);
    set(names::ZONE, &locality.zone);
    set(names::SUBZONE, &locality.subzone);
    set(names::CLUSTER, cluster);
    set(names::HOSTNAME, node);
    if labels.get(names::NETWORK).is_none_or(String::is_empty) {
        set(names::NETWORK, network);
    }
    out
}

/// `PreferSameZone`, `PreferSameNode` or empty (Istio's `GetTrafficDistribution`): from the field, else the object's
/// annotation, else its namespace's. An annotation with an unknown value means no preference and overrides the namespace's.
pub fn traffic_distribution(field: Option<&str>, annotations: &Labels, namespace: Option<&Labels>) -> String {
    match field {
        Some("PreferSameZone" | "PreferClose") => return "PreferSameZone".to_string(),
        Some("PreferSameNode") => return "PreferSameNode".to_string(),
        _ => {}
    }
    let of = |map: &Labels| map.get(names::TRAFFIC_DISTRIBUTION).filter(|v| !v.is_empty()).cloned();
    let value = of(annotations).or_else(|| of(namespace?)).unwrap_or_default();
    match value.to_ascii_lowercase().as_str() {
        "preferclose" | "prefersamezone" => "PreferSameZone".to_string(),
        "prefersamenode" => "PreferSameNode".to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect()
    }

    #[test]
    fn augmented_labels_keep_the_network_that_is_written() {
        let given = labels(&[("topology.istio.io/network", "n1"), ("topology.kubernetes.io/zone", "old")]);
        let out = augment_labels(&given, "c1", &parse_locality("r/z"), "", "n2");
        assert_eq!(out[names::NETWORK], "n1");
        assert_eq!(out[names::ZONE], "z");
        assert_eq!(out[names::CLUSTER], "c1");
        assert!(!out.contains_key(names::HOSTNAME));
    }

    #[test]
    fn an_unknown_traffic_distribution_hides_the_namespace() {
        let ns = labels(&[(names::TRAFFIC_DISTRIBUTION, "PreferClose")]);
        let unknown = labels(&[(names::TRAFFIC_DISTRIBUTION, "nearby")]);
        assert_eq!(traffic_distribution(None, &Labels::new(), Some(&ns)), "PreferSameZone");
        assert_eq!(traffic_distribution(None, &unknown, Some(&ns)), "");
        assert_eq!(traffic_distribution(Some("PreferSameNode"), &unknown, Some(&ns)), "PreferSameNode");
    }
}
