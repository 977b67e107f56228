//! The route of a service port that no VirtualService touches, outbound and inbound.

use super::{action, matching, retry};
use crate::{
    generate::names::host_port,
    model::Protocol,
    proto::{
        envoy::config::route::v3::{
            Decorator, Route, RouteAction,
            route::Action,
            route_action::{ClusterSpecifier, MaxStreamDuration},
        },
        mesh::MeshConfig,
        networking::{HttpRetry, load_balancer_settings::ConsistentHashLb},
        seconds,
    },
};

const DEFAULT_ROUTE: &str = "default";

/// The operation of a service port in traces (Istio's `TraceOperation`).
#[must_use]
pub fn trace_operation(host: &str, port: u32) -> String {
    format!("{}/*", host_port(host, port))
}

/// Everything to one cluster, without a timeout, with retries (Istio's `BuildDefaultHTTPOutboundRoute`).
#[must_use]
pub fn outbound_route(
    cluster: String,
    operation: String,
    default_retry: Option<&HttpRetry>,
    hash: Option<&ConsistentHashLb>,
) -> Route {
    let mut action = RouteAction {
        retry_policy: retry::outbound(default_retry, false),
        hash_policy: hash.and_then(super::hash::policy).into_iter().collect(),
        ..to_cluster(cluster)
    };
    action::set_timeout(&mut action, None, false);
    route(operation, action)
}

/// Everything to the workload's own cluster, without a timeout. gRPC streams and retries do not go together, so gRPC ports
/// have none (Istio's `BuildDefaultHTTPInboundRoute`).
#[must_use]
pub fn inbound_route(cluster: String, operation: String, protocol: Protocol, mesh: &MeshConfig) -> Route {
    let asked = mesh.default_inbound_http_retry_policy.as_ref();
    let action = RouteAction {
        timeout: Some(seconds(0)),
        max_stream_duration: Some(MaxStreamDuration {
            max_stream_duration: Some(seconds(0)),
            grpc_timeout_header_max: Some(seconds(0)),
            ..Default::default()
        }),
        retry_policy: (!protocol.is_grpc()).then(|| retry::inbound(asked)).flatten(),
        ..to_cluster(cluster)
    };
    route(operation, action)
}

fn to_cluster(cluster: String) -> RouteAction {
    RouteAction { cluster_specifier: Some(ClusterSpecifier::Cluster(cluster)), ..Default::default() }
}

fn route(operation: String, action: RouteAction) -> Route {
    Route {
        name: DEFAULT_ROUTE.to_string(),
        r#match: Some(matching::any()),
        decorator: Some(Decorator { operation, ..Default::default() }),
        action: Some(Action::Route(action)),
        ..Default::default()
    }
}
