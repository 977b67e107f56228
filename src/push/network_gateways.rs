//! Gateways between networks (Istio's `NetworkManager`): from `meshNetworks` and from Kubernetes Services that are labelled
//! as the gateway of a network.
//!
//! A gateway whose address is a host name counts only for DNS clusters ([`NetworkGateways::unresolved`]): there Envoy
//! resolves it. Istio resolves such names itself for EDS; nothing here does I/O, so they are left out there.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use super::context::PushInputs;
use crate::{
    model::{Registry, Service},
    proto::mesh::network::{istio_network_gateway::Gw, network_endpoints::Ne},
};

/// Label of a Service that is the gateway of a network.
const NETWORK_LABEL: &str = "topology.istio.io/network";
/// Label with the port of such a gateway.
const PORT_LABEL: &str = "networking.istio.io/gatewayPort";
/// Port for traffic between networks unless the label says otherwise.
const DEFAULT_PORT: u32 = 15443;

/// One way into a network. Ordered by address, then port, as Istio orders them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetworkGateway {
    /// IP or host name.
    pub address: String,
    /// Port for mutual TLS with SNI.
    pub port: u32,
    /// The network behind it.
    pub network: Arc<str>,
    /// The cluster that it is in; empty when unknown.
    pub cluster: Arc<str>,
}

/// A set of gateways, indexed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct GatewaySet {
    by_network: BTreeMap<Arc<str>, Vec<NetworkGateway>>,
    by_network_and_cluster: BTreeMap<(Arc<str>, Arc<str>), Vec<NetworkGateway>>,
    /// Least common multiple of the numbers of gateways per network and per cluster: what weights are scaled by.
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

    /// More than one network: some network has a gateway.
    #[must_use]
    pub fn is_multi_network(&self) -> bool {
        !self.by_network.is_empty()
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
    /// Those with an IP.
    pub resolved: GatewaySet,
    /// All of them.
    pub unresolved: GatewaySet,
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
        let resolved = all.iter().filter(|g| g.address.parse::<IpAddr>().is_ok()).cloned().collect();
        Self { resolved: GatewaySet::of(&resolved), unresolved: GatewaySet::of(&all) }
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

/// Networks that a Service is the gateway of, with the service port: by label, else by name in `meshNetworks`.
fn ports_of_service(inputs: &PushInputs, service: &Service, cluster: &Arc<str>) -> Vec<(Arc<str>, u32)> {
    if let Some(network) = service.labels.get(NETWORK_LABEL).filter(|n| !n.is_empty()) {
        let port = service.labels.get(PORT_LABEL).and_then(|p| p.parse().ok()).unwrap_or(DEFAULT_PORT);
        return service.port_by_number(port).map(|_| (network.as_str().into(), port)).into_iter().collect();
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

fn least_common_multiple(a: u32, b: u32) -> u32 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a.checked_div(x).map_or(1, |times| times.saturating_mul(b).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_scale_by_the_least_common_multiple() {
        assert_eq!(least_common_multiple(4, 6), 12);
        assert_eq!(least_common_multiple(1, 7), 7);
    }
}
