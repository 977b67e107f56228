//! Resources for proxyless gRPC clients and servers (`GENERATOR: grpc`): everything by name, in the shapes that gRPC accepts.
//!
//! A client target `host[:port]` is a listener of exactly that name with an API listener; a server asks for
//! `xds.istio.io/grpc/lds/inbound/ADDRESS`. Routes are named `outbound|port||host` and hold the virtual hosts of that host
//! only. Clusters are built for the requested names. Follows Istio's `grpcgen`; EnvoyFilters, which Istio does not apply to gRPC,
//! patch clusters, virtual hosts and routes, as far as gRPC takes the result.

mod cluster;
mod listener;
mod not_applied;
mod patched;
mod rbac;
mod route;
mod tls;

pub use cluster::clusters;
pub use listener::{SERVER_LISTENER_PREFIX, listeners};
pub use not_applied::{NotApplied, endpoint_weights};
pub use rbac::not_enforced;

use std::collections::BTreeSet;

use super::{names::parse_subset_key, route as routes_of};
use crate::{
    model::host,
    proto::envoy::config::{
        listener::v3::Listener,
        route::v3::{RouteConfiguration, VirtualHost, route::Action, route_action::ClusterSpecifier},
    },
    push::{ProxyView, PushContext},
};

/// The generator that proxyless gRPC clients name in their metadata (`GENERATOR`).
pub const GENERATOR: &str = "grpc";

/// The route configurations that these listeners name.
#[must_use]
pub fn route_names(listeners: &[Listener]) -> BTreeSet<String> {
    listeners.iter().filter_map(listener::route_name).collect()
}

/// The clusters that these route configurations name.
#[must_use]
pub fn cluster_names(routes: &[RouteConfiguration]) -> Vec<String> {
    let mut names = BTreeSet::new();
    for action in routes.iter().flat_map(|r| &r.virtual_hosts).flat_map(|v| &v.routes).filter_map(|r| r.action.as_ref())
    {
        let Action::Route(action) = action else { continue };
        match &action.cluster_specifier {
            Some(ClusterSpecifier::Cluster(name)) => {
                names.insert(name.clone());
            }
            Some(ClusterSpecifier::WeightedClusters(all)) => names.extend(all.clusters.iter().map(|c| c.name.clone())),
            _ => {}
        }
    }
    names.into_iter().collect()
}

/// The route configuration of a name `outbound|port||host`, and the parts of config that gRPC does not apply for it; `None`
/// for a name of another form.
#[must_use]
pub fn route_configuration(
    context: &PushContext,
    view: &ProxyView,
    name: &str,
) -> Option<(RouteConfiguration, Vec<NotApplied>)> {
    let (_, _, hostname, port) = parse_subset_key(name).filter(|(_, _, h, p)| !h.is_empty() && *p != 0)?;
    let mut virtual_hosts = routes_of::proxyless_virtual_hosts(context, view, name, port);
    virtual_hosts.retain(|(v, _)| serves(v, &hostname.to_ascii_lowercase(), port));
    patched::virtual_hosts(view, name, &mut virtual_hosts);
    let mut not_applied: Vec<NotApplied> =
        virtual_hosts.iter_mut().flat_map(|(v, objects)| route::fit(v, objects, name)).collect();
    if virtual_hosts.is_empty() {
        let scope = context.scope(view);
        let service = scope.services_by_host.get(hostname);
        not_applied.extend(service.and_then(|s| not_applied::protocol(s, s.port_by_number(port)?)));
    }
    let virtual_hosts = virtual_hosts.into_iter().map(|(v, _)| v).collect();
    Some((RouteConfiguration { name: name.to_string(), virtual_hosts, ..RouteConfiguration::default() }, not_applied))
}

/// Whether one of the domains is this host, with this port or none; wildcards count.
fn serves(virtual_host: &VirtualHost, hostname: &str, port: u32) -> bool {
    let wanted = if hostname.contains(':') { format!("[{hostname}]") } else { hostname.to_string() };
    let port = port.to_string();
    virtual_host.domains.iter().any(|domain| {
        let domain = domain.to_ascii_lowercase();
        let (name, domain_port) = match domain.rsplit_once(':') {
            Some((name, p)) if !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()) => (name, Some(p)),
            _ => (domain.as_str(), None),
        };
        domain_port.is_none_or(|p| p == port)
            && (name == wanted || (host::is_wildcard(name) && host::matches(name, hostname)))
    })
}

#[cfg(test)]
mod tests;
