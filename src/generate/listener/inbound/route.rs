//! The routes of an inbound connection manager: everything to the workload.

use super::chains::ChainConfig;
use crate::{
    generate::{
        listener::builder::Builder,
        route::{inbound_route, trace_operation},
    },
    proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost},
};

/// The inline route configuration of a port (Istio's `buildSidecarInboundHTTPRouteConfig`).
#[must_use]
pub fn inline(builder: &Builder, config: &ChainConfig) -> RouteConfiguration {
    let operation = trace_operation(&config.host, config.port.port);
    let route = inbound_route(config.cluster.clone(), operation, config.port.protocol, builder.mesh());
    RouteConfiguration {
        name: config.cluster.clone(),
        virtual_hosts: vec![VirtualHost {
            name: format!("inbound|http|{}", config.port.port),
            domains: vec!["*".to_string()],
            routes: vec![route],
            ..Default::default()
        }],
        validate_clusters: Some(false),
        ..Default::default()
    }
}
