//! Gateways between networks (Istio's `NetworkManager`): from `meshNetworks`, from Kubernetes Services that are labelled as
//! the gateway of a network, and from Gateway API Gateways with that label, of every cluster.
//!
//! A gateway whose address is a host name counts for DNS clusters ([`NetworkGateways::unresolved`]), where Envoy resolves it,
//! and for EDS with each address that the name has. Nothing here does I/O: which names are to be resolved is told
//! ([`NetworkGateways::names`]), and the addresses are an input. Without `RESOLVE_HOSTNAME_GATEWAYS` none is.
//!
//! Istio brings the set for DNS clusters up to date only when a look at the gateways leaves the resolved set as it was. The
//! look that finds gateways with an IP therefore leaves it empty, and DNS endpoints of other networks are called directly
//! wherever such a gateway exists. So it is here.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use super::context::PushInputs;
use serde_json::Value;

use crate::{
    model::{Config, Kind, Registry, Service, Spec, labels::gateway_of},
    proto::mesh::network::{istio_network_gateway::Gw, network_endpoints::Ne},
};

/// Class of Gateways that describe one that is elsewhere.
const REMOTE_CLASS: &str = "istio-remote";
/// Option of a listener that passes traffic between networks through.
const MODE_OPTION: &str = "gateway.istio.io/listener-protocol";
const AUTO_PASSTHROUGH: &str = "auto-passthrough";

/// One address and port that leads into a network. Ordered by address, then port, as Istio orders them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetworkGateway {
    /// IP or host name.
    pub address: String,
    /// Port for mutual TLS with SNI.
    pub port: u32,
    /// The network behind the gateway.
    pub network: Arc<str>,
    /// The cluster that the gateway is in; empty when unknown.
    pub cluster: Arc<str>,
}

/// A set of gateways by network and cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct GatewaySet {
    by_network: BTreeMap<Arc<str>, Vec<NetworkGateway>>,
    by_network_and_cluster: BTreeMap<(Arc<str>, Arc<str>), Vec<NetworkGateway>>,
    /// Least common multiple of the numbers of gateways per network and per cluster: the factor that weights are scaled by.
    pub scale: u32,
    /// Hash of the content: equal stamps mean equal sets.
    pub stamp: u64,
}

impl GatewaySet {
    fn of(gateways: &BTreeSet<NetworkGateway>) -> Self {
        let mut set = Self { scale: 1, ..Self::default() };
        for gateway in gateways {
            let key = (gateway.network.clone(), gateway.cluster.clone());
            set.by_network.entry(gateway.network.clone()).or_default().push(gateway.clone());
            set.by_network_and_cluster.entry(key).or_default().push(gateway.clone());
        }
        let sizes = set.by_network.values().chain(set.by_network_and_cluster.values()).map(Vec::len);
        set.scale = sizes.fold(1, |scale, n| least_common_multiple(scale, u32::try_from(n).unwrap_or(u32::MAX)));
        if !gateways.is_empty() {
            set.stamp = xxhash_rust::xxh3::xxh3_64(format!("{gateways:?}").as_bytes()).max(1);
        }
        set
    }

    /// Whether the mesh has more than one network: some network has a gateway.
    #[must_use]
    pub fn is_multi_network(&self) -> bool {
        !self.by_network.is_empty()
    }

    /// All gateways, by network.
    pub fn iter(&self) -> impl Iterator<Item = &NetworkGateway> {
        self.by_network.values().flatten()
    }

    /// The gateways for an endpoint: those of its network in its cluster, else all of its network
    /// (Istio's `selectNetworkGateways`).
    #[must_use]
    pub fn select(&self, network: &Arc<str>, cluster: &Arc<str>) -> &[NetworkGateway] {
        self.by_network_and_cluster
            .get(&(network.clone(), cluster.clone()))
            .or_else(|| self.by_network.get(network))
            .map_or(&[], Vec::as_slice)
    }
}

/// All gateways between networks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NetworkGateways {
    /// Those with an IP, written or resolved.
    pub resolved: GatewaySet,
    /// Those that count for DNS clusters: all, but none where any is written with an IP.
    pub unresolved: GatewaySet,
    /// Host names that are to be resolved.
    pub names: Arc<BTreeSet<Arc<str>>>,
}

impl NetworkGateways {
    /// Builds the index.
    #[must_use]
    pub fn build(inputs: &PushInputs) -> Self {
        let mut all = BTreeSet::new();
        for (network, settings) in &inputs.mesh.networks.networks {
            for gateway in &settings.gateways {
                if let Some(Gw::Address(address)) = &gateway.gw
                    && !address.is_empty()
                {
                    all.insert(NetworkGateway {
                        address: address.clone(),
                        port: gateway.port,
                        network: network.as_str().into(),
                        cluster: "".into(),
                    });
                }
            }
        }
        for service in inputs.registry.services.iter().filter(|s| s.registry == Registry::Kubernetes) {
            all.extend(of_service(inputs, service));
        }
        if inputs.features.multi_network_gateway_api {
            all.extend(inputs.configs.list(Kind::KubernetesGateway).iter().flat_map(|c| of_gateway(inputs, c)));
        }
        let (mut resolved, named): (BTreeSet<_>, BTreeSet<_>) =
            all.iter().cloned().partition(|g| g.address.parse::<IpAddr>().is_ok());
        if !resolved.is_empty() {
            all.clear();
        }
        let mut names = BTreeSet::new();
        if inputs.features.resolve_hostname_gateways {
            for gateway in &named {
                let name: Arc<str> = gateway.address.as_str().into();
                let addresses = inputs.registry.names.get(&name).into_iter().flatten();
                resolved.extend(addresses.map(|ip| NetworkGateway { address: ip.to_string(), ..gateway.clone() }));
                names.insert(name);
            }
        }
        Self { resolved: GatewaySet::of(&resolved), unresolved: GatewaySet::of(&all), names: Arc::new(names) }
    }
}

/// The gateways that a Service stands for, one per cluster and external address.
fn of_service(inputs: &PushInputs, service: &Service) -> Vec<NetworkGateway> {
    let mut found = Vec::new();
    for (cluster, addresses) in &service.cluster_external_addresses {
        let node_ports = service.cluster_external_ports.get(cluster);
        for (network, port) in ports_of_service(inputs, service, cluster) {
            let port = node_ports.and_then(|p| p.get(&port)).copied().unwrap_or(port);
            found.extend(addresses.iter().map(|address| NetworkGateway {
                address: address.clone(),
                port,
                network: network.clone(),
                cluster: cluster.clone(),
            }));
        }
    }
    found
}

/// Networks that a cluster's Service is the gateway of, with the service port: by label, else by name in `meshNetworks`.
fn ports_of_service(inputs: &PushInputs, service: &Service, cluster: &Arc<str>) -> Vec<(Arc<str>, u32)> {
    if let Some((network, port)) = service.cluster_gateway_of.get(cluster) {
        return port.map(|port| (network.clone(), port)).into_iter().collect();
    }
    let networks = &inputs.mesh.networks.networks;
    networks
        .iter()
        .filter(|(_, n)| n.endpoints.iter().any(|e| matches!(&e.ne, Some(Ne::FromRegistry(r)) if **r == **cluster)))
        .flat_map(|(id, n)| n.gateways.iter().map(move |g| (id, g)))
        .filter(|(_, g)| matches!(&g.gw, Some(Gw::RegistryServiceName(name)) if **name == *service.hostname))
        .map(|(id, g)| (id.as_str().into(), g.port))
        .collect()
}

/// The ways into a network that a Gateway API Gateway stands for: each of its addresses with each listener that passes traffic
/// between networks through. One of class `istio-remote` describes a gateway elsewhere, and counts in the main cluster only.
fn of_gateway(inputs: &PushInputs, config: &Config) -> Vec<NetworkGateway> {
    let (labels, origin) = (&config.meta.labels, &config.origin.cluster);
    let Some((network, cross_network)) = gateway_of(labels) else { return Vec::new() };
    let Spec::Raw(_, document) = &config.spec else { return Vec::new() };
    let spec = &document["spec"];
    if spec["gatewayClassName"] == REMOTE_CLASS && !config.is_of_main_cluster() {
        return Vec::new();
    }
    let port = |listener: &Value| {
        let tls = listener.get("tls").filter(|t| !t.is_null())?;
        let port = listener["port"].as_u64().and_then(|p| u32::try_from(p).ok())?;
        (tls["options"][MODE_OPTION] == AUTO_PASSTHROUGH || port == cross_network).then_some(port)
    };
    let ports: Vec<u32> = spec["listeners"].as_array().into_iter().flatten().filter_map(port).collect();
    let is_address = |a: &&Value| matches!(a["type"].as_str(), None | Some("IPAddress" | "Hostname"));
    let addresses = spec["addresses"].as_array().into_iter().flatten().filter(is_address);
    let addresses = addresses.filter_map(|a| a["value"].as_str());
    let cluster = if origin.is_empty() { &inputs.mesh.cluster_id } else { origin };
    addresses
        .flat_map(|address| ports.iter().map(move |port| (address, *port)))
        .map(|(address, port)| NetworkGateway {
            address: address.to_string(),
            port,
            network: network.into(),
            cluster: cluster.clone(),
        })
        .collect()
}

fn least_common_multiple(a: u32, b: u32) -> u32 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a.checked_div(x).map_or(1, |times| times.saturating_mul(b).max(1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{
        ConfigSnapshot, Origin, decode,
        labels::{GATEWAY_PORT, NETWORK},
    };

    #[test]
    fn weights_scale_by_the_least_common_multiple() {
        assert_eq!(least_common_multiple(4, 6), 12);
        assert_eq!(least_common_multiple(1, 7), 7);
    }

    #[test]
    fn each_cluster_s_service_is_the_gateway_of_its_own_network() {
        let service = |networks: [&str; 2], address: &str| {
            let by_cluster = |i: usize| (Arc::from(["east", "west"][i]), vec![format!("{address}{i}")]);
            let gateway_of = |i: usize| (Arc::from(["east", "west"][i]), (Arc::from(networks[i]), Some(15443)));
            Service {
                registry: Registry::Kubernetes,
                cluster_external_addresses: [0, 1].map(by_cluster).into(),
                cluster_gateway_of: [0, 1].map(gateway_of).into(),
                ..Service::default()
            }
        };
        let built = |address: &str| {
            let registry = crate::model::RegistrySnapshot {
                services: Arc::new(vec![Arc::new(service(["net1", "net2"], address))]),
                ..crate::model::RegistrySnapshot::default()
            };
            NetworkGateways::build(&PushInputs { registry, ..PushInputs::default() })
        };
        let (ips, names) = (built("192.0.2."), built("gw."));
        let of = |set: &GatewaySet, network: &str| -> Vec<String> {
            set.by_network.get(network).into_iter().flatten().map(|g| g.address.clone()).collect()
        };
        assert_eq!(of(&ips.resolved, "net1"), ["192.0.2.0"]);
        assert_eq!(of(&ips.resolved, "net2"), ["192.0.2.1"]);
        assert_eq!(ips.resolved.scale, 1);
        assert!(!ips.unresolved.is_multi_network(), "with addresses, names are never looked at");
        assert!(!names.resolved.is_multi_network());
        assert_eq!(of(&names.unresolved, "net2"), ["gw.1"]);
    }

    #[test]
    fn a_host_name_stands_for_each_of_its_addresses() {
        let networks = json!({"networks": {
            "east": {"gateways": [{"address": "gw.example", "port": 15443}]},
            "west": {"gateways": [{"address": "other.example", "port": 15443}]},
        }});
        let mesh = crate::model::Mesh::from_values(&Value::Null, &networks, "cluster.local", "Kubernetes").unwrap();
        let names = [("gw.example".into(), vec!["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()])];
        let registry = crate::model::RegistrySnapshot {
            names: Arc::new(names.into()),
            ..crate::model::RegistrySnapshot::default()
        };
        let mut inputs = PushInputs { mesh: Arc::new(mesh), registry, ..PushInputs::default() };
        let built = NetworkGateways::build(&inputs);
        let east = built.resolved.select(&"east".into(), &"".into());
        assert_eq!(east.iter().map(|g| &*g.address).collect::<Vec<_>>(), ["192.0.2.7", "2001:db8::7"]);
        assert!(built.resolved.select(&"west".into(), &"".into()).is_empty());
        assert_eq!(built.names.iter().map(|n| &**n).collect::<Vec<_>>(), ["gw.example", "other.example"]);
        assert!(built.unresolved.is_multi_network(), "Envoy resolves names of DNS clusters itself");
        let features = crate::model::Features { resolve_hostname_gateways: false, ..Default::default() };
        inputs.features = Arc::new(features);
        let built = NetworkGateways::build(&inputs);
        assert!(!built.resolved.is_multi_network() && built.names.is_empty());
    }

    fn built(class: &str, cluster: &str, labels: Value) -> Vec<(String, u32, String)> {
        let gateway = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "ew", "namespace": "istio-system", "labels": labels},
            "spec": {"gatewayClassName": class,
                "addresses": [{"value": "192.0.2.1"}, {"type": "NamedAddress", "value": "x"}],
                "listeners": [{"name": "plain", "port": 15443, "protocol": "TCP"},
                    {"name": "a", "port": 15443, "protocol": "TLS", "tls": {}},
                    {"name": "b", "port": 16000, "protocol": "TLS", "tls": {"options": {MODE_OPTION: AUTO_PASSTHROUGH}}}]}});
        let origin = Origin { cluster: cluster.into(), ..Origin::default() };
        let config = Arc::new(decode::from_value(&gateway, origin).unwrap());
        let inputs = PushInputs { configs: ConfigSnapshot::of([config]), ..PushInputs::default() };
        let gateways = NetworkGateways::build(&inputs).resolved;
        let all = gateways.by_network.into_values().flatten();
        all.map(|g| (g.address, g.port, g.cluster.to_string())).collect()
    }

    #[test]
    fn gateways_of_the_gateway_api_lead_into_their_network() {
        let of = |port: u32, cluster: &str| ("192.0.2.1".to_string(), port, cluster.to_string());
        let west = json!({NETWORK: "west"});
        assert_eq!(built("istio", "", west.clone()), [of(15443, "Kubernetes"), of(16000, "Kubernetes")]);
        assert_eq!(built("istio", "w", west.clone()), [of(15443, "w"), of(16000, "w")]);
        assert_eq!(built("istio", "w", json!({})), []);
        assert_eq!(built(REMOTE_CLASS, "w", west), []);
        let other = json!({NETWORK: "west", GATEWAY_PORT: "1"});
        assert_eq!(built(REMOTE_CLASS, "", other), [of(16000, "Kubernetes")]);
    }
}
