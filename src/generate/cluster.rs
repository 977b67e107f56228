//! Clusters: the resources of CDS.
//!
//! [`ClusterInputs`] holds all inputs of one outbound cluster and is at once its cache key; its builder gets nothing else, so
//! that a cluster cached for one proxy cannot hold data of another. [`OutboundPlan`] names the clusters of a view and owns
//! the data that their inputs borrow. Order is Istio's: services as they are pushed, for each port all endpoints and then the
//! subsets, the clusters that belong to no service, then the inbound ones. Names are unique: the first one stays.

mod build;
mod capabilities;
mod connection_pool;
mod draft;
mod dynamic;
mod inbound;
mod inference;
mod inputs;
mod load_balancer;
mod metadata;
mod outbound;
mod outlier;
mod special;
mod tls;
mod tls_context;

use std::collections::HashSet;

pub use capabilities::{Capabilities, ClientCertificates, Flags};
pub use inputs::{ClusterInputs, ClusterMode};
pub use outbound::OutboundPlan;
pub use special::{ALLOW_ANY_DYNAMIC_DNS, BLACK_HOLE, INBOUND_PASSTHROUGH, PASSTHROUGH};

pub use super::endpoint::eds_cluster_names;
use crate::{
    generate::check,
    model::NodeType,
    proto::{envoy::config::cluster::v3::Cluster, mesh::mesh_config::outbound_traffic_policy::Mode},
    push::{ProxyView, PushContext},
};

/// All clusters of a proxy (Istio's `BuildClusters`).
#[must_use]
pub fn all(context: &PushContext, view: &ProxyView) -> Vec<Cluster> {
    let mut clusters = if view.is_router() {
        outbound(context, view)
    } else {
        let mut clusters = outbound(context, &view.outbound(false));
        clusters.extend(inbound(context, view).into_iter().filter_map(|c| Some(check::cluster(c, || None).ok()?.0)));
        clusters
    };
    clusters.extend(external_sds(context, view).into_iter().filter_map(|c| Some(check::cluster(c, || None).ok()?.0)));
    let mut seen = HashSet::new();
    clusters.retain(|c| seen.insert(c.name.clone()));
    clusters
}

/// The clusters of outbound traffic, and those for unknown destinations. For a sidecar the outbound half of the view is
/// enough; a router's Gateways are found by its own services.
#[must_use]
pub fn outbound(context: &PushContext, view: &ProxyView) -> Vec<Cluster> {
    let mut clusters: Vec<Cluster> = OutboundPlan::of(context, view).inputs().filter_map(taken).collect();
    clusters.extend(unknown_destinations(context, view));
    if let Some(plan) = OutboundPlan::sni_dnat(context, view) {
        clusters.extend(plan.inputs().filter_map(taken));
    }
    clusters
}

fn taken(inputs: ClusterInputs) -> Option<Cluster> {
    inputs.checked().ok().flatten().map(|(cluster, _)| cluster)
}

/// The clusters for destinations that are no service: refused for a router, by the outbound traffic policy for a sidecar.
#[must_use]
pub fn unknown_destinations(context: &PushContext, view: &ProxyView) -> Vec<Cluster> {
    let mesh = &context.mesh().config;
    let mut clusters = vec![special::black_hole(mesh)];
    if view.node_type == NodeType::Sidecar {
        let capabilities = Capabilities::of(context, view);
        clusters.push(special::passthrough(mesh, &capabilities));
        if context.scope(view).outbound_traffic_policy.mode == Mode::AllowAnyDynamicDns as i32 {
            clusters.push(special::allow_any_dynamic_dns(context, view, &capabilities));
        }
    }
    if view.counts {
        clusters.iter_mut().for_each(metadata::add_nameless);
    }
    clusters
}

/// The cluster of the proxy's own SDS server, if its metadata names one.
#[must_use]
pub fn external_sds(context: &PushContext, view: &ProxyView) -> Option<Cluster> {
    (view.metadata.other("credential") == "true").then(|| special::external_sds(&context.mesh().config))
}

/// The clusters of the traffic that arrives at a sidecar's workload. Needs the whole view.
#[must_use]
pub fn inbound(context: &PushContext, view: &ProxyView) -> Vec<Cluster> {
    let capabilities = Capabilities::of(context, view);
    let mut clusters = inbound::clusters(context, view, &capabilities);
    let mut passthrough = special::inbound_passthrough(&context.mesh().config, &capabilities, view);
    if view.counts {
        metadata::add_nameless(&mut passthrough);
    }
    clusters.push(passthrough);
    clusters
}

#[cfg(test)]
mod tests;
