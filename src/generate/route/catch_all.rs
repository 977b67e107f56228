//! The virtual host for everything that no other one takes: let through, resolved on demand, or refused
//! (Istio's `buildCatchAllVirtualHost`).

use super::{action, cluster_name, matching};
use crate::{
    generate::proxy_config::ProxyHeaders,
    model::NodeType,
    proto::{
        envoy::config::route::v3::{
            DirectResponseAction, Route, RouteAction, VirtualHost, route::Action, route_action::ClusterSpecifier,
        },
        mesh::mesh_config::outbound_traffic_policy::Mode,
    },
    push::{ProxyView, SidecarScope},
};

const PASSTHROUGH: &str = "allow_any";
const PASSTHROUGH_CLUSTER: &str = "PassthroughCluster";
const DYNAMIC_DNS: &str = "allow_any_dynamic_dns";
const DYNAMIC_DNS_CLUSTER: &str = "AllowAnyDynamicDNSCluster";
const BLACK_HOLE: &str = "block_all";
const BAD_GATEWAY: u32 = 502;

/// The last virtual host of an outbound route configuration.
#[must_use]
pub fn virtual_host(view: &ProxyView, scope: &SidecarScope, headers: &ProxyHeaders) -> VirtualHost {
    let policy = &scope.outbound_traffic_policy;
    let (name, action) = if policy.mode == Mode::AllowAnyDynamicDns as i32 && view.node_type == NodeType::Sidecar {
        (DYNAMIC_DNS, forward(DYNAMIC_DNS_CLUSTER.to_string(), headers))
    } else if policy.mode == Mode::AllowAny as i32 {
        let cluster = match &policy.egress_proxy {
            Some(proxy) => cluster_name::of(proxy, None, 0),
            None => PASSTHROUGH_CLUSTER.to_string(),
        };
        (PASSTHROUGH, forward(cluster, headers))
    } else {
        let refuse = DirectResponseAction { status: BAD_GATEWAY, ..Default::default() };
        (BLACK_HOLE, Action::DirectResponse(refuse))
    };
    let route =
        Route { name: name.to_string(), r#match: Some(matching::any()), action: Some(action), ..Default::default() };
    VirtualHost {
        name: name.to_string(),
        domains: vec!["*".to_string()],
        routes: vec![route],
        include_request_attempt_count: headers.attempt_count,
        ..Default::default()
    }
}

fn forward(cluster: String, headers: &ProxyHeaders) -> Action {
    let mut action = RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster)),
        append_x_forwarded_host: headers.x_forwarded_host,
        ..Default::default()
    };
    action::set_timeout(&mut action, None, false);
    Action::Route(action)
}
