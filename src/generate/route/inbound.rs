//! The route configuration inside an inbound HTTP connection manager (Istio's `buildSidecarInboundHTTPRouteConfig`).

use super::defaults::{inbound_route, trace_operation};
use crate::{
    model::Protocol,
    proto::{
        envoy::config::route::v3::{RouteConfiguration, VirtualHost},
        mesh::MeshConfig,
    },
};

/// Everything to one inbound cluster. `host` and `port` are the service's, for traces and for the virtual host's name
/// `inbound|http|PORT`; they are empty and 0 for passthrough.
#[must_use]
pub fn inbound(cluster: &str, host: &str, port: u32, protocol: Protocol, mesh: &MeshConfig) -> RouteConfiguration {
    let route = inbound_route(cluster.to_string(), trace_operation(host, port), protocol, mesh);
    let virtual_host = VirtualHost {
        name: format!("inbound|http|{port}"),
        domains: vec!["*".to_string()],
        routes: vec![route],
        ..Default::default()
    };
    RouteConfiguration {
        name: cluster.to_string(),
        virtual_hosts: vec![virtual_host],
        validate_clusters: Some(false),
        ..Default::default()
    }
}
