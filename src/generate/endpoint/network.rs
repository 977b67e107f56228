//! Endpoints across networks: those of another network are replaced by the gateways of that network
//! (Istio's `EndpointsByNetworkFilter`, "split horizon").

use std::{collections::BTreeMap, sync::Arc};

use super::{
    group::{LocalityGroup, Member},
    inputs::EndpointInputs,
    member,
};
use crate::{
    model::{NodeType, Resolution},
    push::network_gateways::{GatewaySet, NetworkGateway},
};

/// The gateways that count for a cluster: DNS clusters may use host names, since Envoy resolves them.
pub(super) fn gateways<'a>(inputs: &EndpointInputs<'a>) -> &'a GatewaySet {
    match inputs.service.resolution {
        Resolution::DnsLB | Resolution::DnsRoundRobinLB => &inputs.gateways.unresolved,
        _ => &inputs.gateways.resolved,
    }
}

/// Replaces endpoints that the client cannot reach by gateways. Weights are scaled, so that each endpoint's weight can be
/// split among several gateways.
pub(super) fn split_horizon(inputs: &EndpointInputs<'_>, groups: Vec<LocalityGroup>) -> Vec<LocalityGroup> {
    let gateways = gateways(inputs);
    if !gateways.is_multi_network() {
        return groups;
    }
    groups.into_iter().map(|group| split(inputs, gateways, group)).collect()
}

fn split(inputs: &EndpointInputs<'_>, gateways: &GatewaySet, group: LocalityGroup) -> LocalityGroup {
    let client = inputs.client;
    let mut reached = LocalityGroup { locality: group.locality, priority: group.priority, ..LocalityGroup::default() };
    let mut through: BTreeMap<&NetworkGateway, u32> = BTreeMap::new();
    for mut endpoint in group.members {
        if !client.sees(&endpoint.network) {
            continue;
        }
        let selected: Vec<&NetworkGateway> = gateways
            .select(&endpoint.network, &endpoint.cluster)
            .iter()
            .filter(|g| client.node_type != NodeType::Sidecar || g.port != 0)
            .collect();
        let weight = match endpoint.weight() {
            0 => gateways.scale,
            weight => weight.saturating_mul(gateways.scale),
        };
        endpoint.endpoint.load_balancing_weight = Some(weight);
        // A proxy that does not know its network goes through the gateways of any network that has some.
        let unknown = client.network.is_empty() && !endpoint.network.is_empty() && !selected.is_empty();
        if !unknown && (client.in_network(&endpoint.network) || selected.is_empty()) {
            if member::host(&endpoint.endpoint).is_some() {
                reached.members.push(endpoint);
            }
            continue;
        }
        let reachable: Vec<&NetworkGateway> = selected.into_iter().filter(|g| client.reaches(&g.address)).collect();
        // Gateways route by SNI, so only mutual TLS gets through.
        if reachable.is_empty() || !endpoint.mtls {
            continue;
        }
        let share = weight / u32::try_from(reachable.len()).unwrap_or(u32::MAX);
        for gateway in reachable {
            let sum = through.entry(gateway).or_default();
            *sum = sum.saturating_add(share);
        }
    }
    reached.members.extend(through.into_iter().map(|(gateway, weight)| gateway_member(inputs, gateway, weight.max(1))));
    reached.refresh_weight();
    reached
}

fn gateway_member(inputs: &EndpointInputs<'_>, gateway: &NetworkGateway, weight: u32) -> Member {
    let mut labels = BTreeMap::new();
    if !gateway.cluster.is_empty() {
        labels.insert("topology.istio.io/cluster".to_string(), gateway.cluster.to_string());
    }
    labels.insert("topology.istio.io/network".to_string(), gateway.network.to_string());
    Member {
        labels: Arc::new((&labels).into()),
        network: gateway.network.clone(),
        cluster: gateway.cluster.clone(),
        mtls: true,
        endpoint: member::of_gateway(inputs, gateway, weight),
    }
}
