//! From the endpoints of a service to the locality groups of one cluster (Istio's `EndpointBuilder`).

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use super::{
    distinct::distinct,
    group::LocalityGroup,
    inputs::EndpointInputs,
    locality::LocalityLb,
    member,
    network::{gateways, split_horizon},
};
use crate::{
    model::{Endpoint, EndpointSet, HealthStatus, Resolution, labels},
    proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, LocalityLbEndpoints},
};

impl EndpointInputs<'_> {
    /// The load assignment in EDS. A DNS cluster has its endpoints inline, so EDS gives none, but to proxyless gRPC those that
    /// need no DNS.
    #[must_use]
    pub fn load_assignment(&self) -> ClusterLoadAssignment {
        let groups = match self.service.resolution {
            Resolution::DnsLB | Resolution::DnsRoundRobinLB if self.client.proxyless => self.resolved_groups(),
            Resolution::DnsLB | Resolution::DnsRoundRobinLB => Vec::new(),
            _ => self.groups(&self.endpoints_by_name()),
        };
        let groups = self.arranged(groups);
        let assignment = ClusterLoadAssignment {
            cluster_name: self.cluster_name.clone(),
            endpoints: groups.into_iter().map(LocalityLbEndpoints::from).collect(),
            ..ClusterLoadAssignment::default()
        };
        if self.client.proxyless { distinct(assignment) } else { assignment }
    }

    /// The groups with the priorities and weights that the client's place gives them.
    pub(super) fn arranged(&self, mut groups: Vec<LocalityGroup>) -> Vec<LocalityGroup> {
        let policy = self.policy();
        let setting = LocalityLb::effective(&self.mesh.config, policy.load_balancer, self.service);
        if let (Some(setting), Some(place)) = (setting, &self.place) {
            setting.apply(&mut groups, place, policy.outlier_detection.is_some());
        }
        groups
    }

    /// The inline endpoints of a DNS cluster, before locality load balancing.
    pub(crate) fn inline_groups(&self) -> Vec<LocalityGroup> {
        self.groups(&self.endpoints_by_number())
    }

    /// Endpoints whose service port has the port's name (of an InferencePool all), with an address that EDS can carry.
    fn endpoints_by_name(&self) -> Vec<Arc<Endpoint>> {
        let local = self.is_cluster_local() || self.service.node_local;
        let fits = |e: &Arc<Endpoint>| {
            let first = e.addresses.first().map_or("", |a| &**a);
            let addressable = first.is_empty() || e.port == 0 || first.parse::<IpAddr>().is_ok();
            let of_port = e.service_port_name == self.port.name || self.service.is_inference_pool();
            of_port && addressable && self.in_subset(e)
        };
        let shards = self.set.into_iter().flat_map(|set| &set.shards);
        shards
            .filter(|(key, _)| !local || key.cluster == self.client.cluster)
            .flat_map(|(_, endpoints)| endpoints.iter())
            .filter(|e| fits(e))
            .cloned()
            .collect()
    }

    /// Endpoints of the port by its number where they carry one, else by its name.
    fn endpoints_by_number(&self) -> Vec<Arc<Endpoint>> {
        let fits = |e: &Arc<Endpoint>| {
            let number = match e.legacy_cluster_port_key {
                0 => self.service.ports.iter().rfind(|p| p.name == e.service_port_name).map(|p| p.port),
                key => Some(key),
            };
            number == Some(self.port.port) && self.in_subset(e)
        };
        self.set.into_iter().flat_map(EndpointSet::iter).filter(|e| fits(e)).cloned().collect()
    }

    fn in_subset(&self, endpoint: &Endpoint) -> bool {
        self.subset_labels().is_none_or(|wanted| labels::matches(wanted, &*endpoint.labels))
    }

    /// Filters, converts and groups by locality, sorted by its label; then gateways of other networks come in.
    fn groups(&self, endpoints: &[Arc<Endpoint>]) -> Vec<LocalityGroup> {
        let mut by_locality: BTreeMap<String, LocalityGroup> = BTreeMap::new();
        let (unhealthy, cluster_local) = (self.sends_unhealthy(), self.is_cluster_local());
        let session = self.service.labels.get(&self.features.persistent_session_label).is_some_and(|v| !v.is_empty());
        let is_sent = |endpoint: &Endpoint| {
            self.is_sent(endpoint, unhealthy, cluster_local) && (session || !member::is_draining(self, endpoint))
        };
        let sent: Vec<&Arc<Endpoint>> = endpoints.iter().filter(|e| is_sent(e)).collect();
        // Neighbours are mostly of one locality, and the key of a group is a new text.
        for run in sent.chunk_by(|a, b| a.locality == b.locality && a.locality_is_padded == b.locality_is_padded) {
            let Some(first) = run.first() else { continue };
            let group = by_locality
                .entry(group_key(first))
                .or_insert_with(|| LocalityGroup { locality: first.locality.clone(), ..LocalityGroup::default() });
            group.members.extend(run.iter().map(|endpoint| member::of_endpoint(self, endpoint)));
        }
        let mut groups: Vec<LocalityGroup> = by_locality.into_values().collect();
        groups.iter_mut().for_each(LocalityGroup::refresh_weight);
        let mut groups = split_horizon(self, groups);
        if self.cluster_name.starts_with("outbound_.") {
            // An AUTO_PASSTHROUGH gateway cannot tell mutual TLS from other TLS, so others must not be reachable.
            for group in &mut groups {
                group.members.retain(|m| m.mtls);
                group.refresh_weight();
            }
        }
        groups
    }

    fn is_sent(&self, endpoint: &Endpoint, unhealthy: bool, cluster_local: bool) -> bool {
        let client = self.client;
        if self.node_name.as_ref().is_some_and(|node| *node != endpoint.node_name)
            || !client.sees(&endpoint.network)
            || (cluster_local && endpoint.cluster != client.cluster)
            || self.replicas.as_ref().is_some_and(|replicas| !replicas.contains(endpoint))
        {
            return false;
        }
        let has_address = endpoint.addresses.first().is_some_and(|a| !a.is_empty());
        if !has_address && (!gateways(self).is_multi_network() || client.in_network(&endpoint.network)) {
            return false;
        }
        match endpoint.health {
            HealthStatus::Terminating => false,
            HealthStatus::UnHealthy => unhealthy,
            _ => true,
        }
    }
}

/// The key by which Istio groups endpoints: the locality as it was written.
fn group_key(endpoint: &Endpoint) -> String {
    let l = &endpoint.locality;
    match endpoint.locality_is_padded && !l.is_empty() {
        true => format!("{}/{}/{}", l.region, l.zone, l.subzone),
        false => l.label(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Locality;

    #[test]
    fn a_locality_written_in_two_ways_makes_two_groups() {
        let key = |text: &str, locality_is_padded| {
            group_key(&Endpoint { locality: Locality::parse(text), locality_is_padded, ..Endpoint::default() })
        };
        assert_ne!(key("r/z", true), key("r/z", false));
        assert_eq!(key("r/z/s", true), key("r/z/s", false));
        assert_eq!(key("", true), key("", false));
    }
}
