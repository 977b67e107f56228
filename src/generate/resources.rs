//! Everything that one proxy is sent: the generators called in the order in which a client asks (CDS, EDS for the clusters,
//! LDS, RDS for the names in the listeners, SDS for the names that use ADS, the name table).

use super::{
    cluster, endpoint, grpc, listener,
    name_table::{self, NameTable},
    route,
    secret::{self, Refused, Secrets},
};
use crate::{
    model::{Identity, NodeType},
    proto::envoy::{
        config::{
            cluster::v3::Cluster, endpoint::v3::ClusterLoadAssignment, listener::v3::Listener,
            route::v3::RouteConfiguration,
        },
        extensions::transport_sockets::tls::v3::Secret,
    },
    push::{ProxyView, PushContext},
};

/// All resources of one proxy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resources {
    /// CDS.
    pub clusters: Vec<Cluster>,
    /// EDS, for the EDS clusters.
    pub endpoints: Vec<ClusterLoadAssignment>,
    /// LDS.
    pub listeners: Vec<Listener>,
    /// RDS, for the names in the listeners.
    pub routes: Vec<RouteConfiguration>,
    /// SDS, for the names that the other resources fetch over ADS.
    pub secrets: Vec<Secret>,
    /// Secrets that were asked for and are not sent, with the reasons.
    pub refused_secrets: Vec<Refused>,
    /// NDS; only with `DNS_CAPTURE`.
    pub name_table: Option<NameTable>,
}

/// Generates everything for a view. `listener_names` are what a proxyless gRPC client asks for; others ask for all.
/// `identity` is what the client proved to be: secrets are sent to nobody else.
#[must_use]
pub fn all(
    context: &PushContext,
    view: &ProxyView,
    listener_names: &[String],
    identity: Option<&Identity>,
) -> Resources {
    if &*view.metadata.generator == "grpc" {
        return grpc::all(context, view, listener_names);
    }
    let clusters = clusters(context, view);
    let endpoints =
        cluster::eds_cluster_names(&clusters).iter().map(|name| load_assignment(context, view, name)).collect();
    let listeners = listeners(context, view);
    let routes =
        listener::route_names(&listeners).iter().map(|name| route_configuration(context, view, name)).collect();
    let names = secret::names(&clusters, &listeners);
    let Secrets { resources: secrets, refused: refused_secrets } = secret::secrets(context, view, &names, identity);
    let name_table = (view.metadata.dns_capture && view.node_type == NodeType::Sidecar)
        .then(|| name_table::name_table(context, view));
    Resources { clusters, endpoints, listeners, routes, secrets, refused_secrets, name_table }
}

/// CDS of a view.
#[must_use]
pub fn clusters(context: &PushContext, view: &ProxyView) -> Vec<Cluster> {
    cluster::all(context, view)
}

/// EDS of one cluster; an unknown name gives an empty assignment.
#[must_use]
pub fn load_assignment(context: &PushContext, view: &ProxyView, cluster_name: &str) -> ClusterLoadAssignment {
    endpoint::load_assignment(context, view, cluster_name)
}

/// LDS of a view.
#[must_use]
pub fn listeners(context: &PushContext, view: &ProxyView) -> Vec<Listener> {
    if view.is_router() { listener::gateway(context, view) } else { listener::sidecar(context, view) }
}

/// One route configuration; an unknown name gives an empty one of that name.
#[must_use]
pub fn route_configuration(context: &PushContext, view: &ProxyView, name: &str) -> RouteConfiguration {
    if !view.is_router() {
        return route::sidecar_outbound(context, &view.outbound(false), name);
    }
    match context.gateways.merged(context, view) {
        Some(merged) => route::gateway(context, view, &merged, name),
        None => route::empty(name),
    }
}
