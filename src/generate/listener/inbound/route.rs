//! The routes of an inbound connection manager: everything to the workload, without a timeout.

use super::chains::ChainConfig;
use crate::{
    generate::{listener::builder::Builder, names::host_port},
    proto::{
        envoy::config::route::v3::{
            Decorator, RetryPolicy, Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
            route::Action,
            route_action::{ClusterSpecifier, MaxStreamDuration},
            route_match::PathSpecifier,
        },
        seconds,
    },
};

/// The inline route configuration of a port (Istio's `buildSidecarInboundHTTPRouteConfig`).
#[must_use]
pub fn inline(builder: &Builder, config: &ChainConfig) -> RouteConfiguration {
    let none = Some(seconds(0));
    let action = RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(config.cluster.clone())),
        timeout: none,
        max_stream_duration: Some(MaxStreamDuration {
            max_stream_duration: none,
            grpc_timeout_header_max: none,
            ..Default::default()
        }),
        // A stream of gRPC messages may be reset before its first message and still have been seen.
        retry_policy: if config.port.protocol.is_grpc() { None } else { retry(builder) },
        ..Default::default()
    };
    let route = Route {
        name: "default".to_string(),
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix("/".to_string())),
            ..Default::default()
        }),
        decorator: Some(Decorator {
            operation: format!("{}/*", host_port(&config.host, config.port.port)),
            ..Default::default()
        }),
        action: Some(Action::Route(action)),
        ..Default::default()
    };
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

fn retry(_builder: &Builder) -> Option<RetryPolicy> {
    Some(RetryPolicy { num_retries: Some(2), retry_on: "reset-before-request".to_string(), ..Default::default() })
}
