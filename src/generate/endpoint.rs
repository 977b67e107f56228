//! Endpoints: the load assignments of EDS, and the inline endpoints of DNS clusters.
//!
//! [`EndpointInputs`] is everything that the endpoints of one cluster are made from and at once their cache key; the code
//! that builds them gets nothing else. A name that leads to no service or port gives an empty load assignment, since a
//! client that asked would wait for ever otherwise. Order is fixed: localities by label, endpoints as the registry has them.

mod build;
mod client;
mod distinct;
mod dns;
mod group;
mod inputs;
mod locality;
mod member;
mod network;

pub use client::{EndpointClient, proxy_labels};
pub use dns::{Discovery, DnsName};
pub(crate) use group::LocalityGroup;
pub use inputs::{ClusterTarget, EndpointInputs, Replicas, destination_rule, forces_unhealthy, service_entry};
pub use locality::{LocalityLb, ProxyLocality, TrafficDistribution};

use std::sync::Arc;

use super::names;
use crate::{
    proto::envoy::config::{
        cluster::v3::{
            Cluster,
            cluster::{ClusterDiscoveryType, DiscoveryType},
        },
        endpoint::v3::ClusterLoadAssignment,
    },
    push::{ProxyView, PushContext, SidecarScope},
};

/// The cluster of a workload's own replicas, which Envoy's bootstrap names; by it Envoy knows its zone's share of the clients.
pub const LOCAL_CLUSTER: &str = "local_cluster";

/// The endpoints of one cluster as a proxy sees them (Istio's `BuildClusterLoadAssignment`). An unknown name gives an empty
/// load assignment of that name.
#[must_use]
pub fn load_assignment(context: &PushContext, view: &ProxyView, cluster_name: &str) -> ClusterLoadAssignment {
    with_inputs(context, view, cluster_name, |inputs| inputs.load_assignment())
        .unwrap_or_else(|| ClusterLoadAssignment { cluster_name: cluster_name.to_string(), ..Default::default() })
}

/// Calls `f` with the inputs of a cluster's endpoints, whose key tells whether an answer that was given before is
/// still right. `None` when the name leads to no service or port.
pub fn with_inputs<R>(
    context: &PushContext,
    view: &ProxyView,
    cluster_name: &str,
    f: impl FnOnce(&EndpointInputs<'_>) -> R,
) -> Option<R> {
    EndpointPlan::of(context, view).with(cluster_name, f)
}

/// The inputs that the endpoints of all clusters of one view share.
#[derive(Debug)]
pub struct EndpointPlan<'a> {
    context: &'a PushContext,
    view: &'a ProxyView,
    scope: Arc<SidecarScope>,
    client: EndpointClient,
}

impl<'a> EndpointPlan<'a> {
    /// The endpoints of a view.
    #[must_use]
    pub fn of(context: &'a PushContext, view: &'a ProxyView) -> Self {
        Self { context, view, scope: context.scope(view), client: EndpointClient::of(view) }
    }

    /// As [`with_inputs`].
    pub fn with<R>(&self, cluster_name: &str, f: impl FnOnce(&EndpointInputs<'_>) -> R) -> Option<R> {
        if cluster_name == LOCAL_CLUSTER {
            return self.with_replicas(f);
        }
        let (_, subset, host, port) = names::parse_subset_key(cluster_name)?;
        let service = self.scope.services_by_host.get(host)?;
        let port = service.port_by_number(port)?;
        let rule = self.scope.destination_rule(self.view, host);
        let target = ClusterTarget { service, port, subset, rule: rule.map(|r| &**r) };
        Some(f(&EndpointInputs::of(self.context, self.view, &self.client, target, cluster_name.to_string())))
    }

    /// The replicas of the view's own workload. None without a service, or with one that the view does not see.
    fn with_replicas<R>(&self, f: impl FnOnce(&EndpointInputs<'_>) -> R) -> Option<R> {
        let own = self.view.own_service()?;
        let service = self.scope.services_by_host.get(&own.service.hostname)?;
        let port = service.port_by_number(own.port.port)?;
        let target = ClusterTarget { service, port, subset: "", rule: None };
        let name = LOCAL_CLUSTER.to_string();
        Some(f(&EndpointInputs::of_replicas(self.context, self.view, &self.client, target, name)))
    }
}

/// The names by which the EDS clusters among these ask for endpoints, in order.
#[must_use]
pub fn eds_cluster_names(clusters: &[Cluster]) -> Vec<String> {
    let eds = Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into()));
    let name = |c: &Cluster| {
        let asked = c.eds_cluster_config.as_ref().map_or("", |e| e.service_name.as_str());
        if asked.is_empty() { c.name.clone() } else { asked.to_string() }
    };
    clusters.iter().filter(|c| c.cluster_discovery_type == eds).map(name).collect()
}
