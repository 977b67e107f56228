//! `virtualOutbound`: takes all captured traffic and hands it to the listener of its destination; traffic without one is
//! handled by the outbound traffic policy.

use crate::{
    generate::{
        listener::{
            bind::{accepts_per_event, additional, address, is_not_captured},
            builder::Builder,
            dynamic_dns, hcm,
            http_options::{HttpOptions, Routes},
            listener_filters::http_inspector,
            tcp::{BLACK_HOLE_CLUSTER, PASSTHROUGH_CLUSTER, tcp_filter, to_cluster},
        },
        proxy_config::ListenerClass,
        route::destination_cluster,
    },
    model::{Protocol, node::InterceptionMode},
    proto::{
        envoy::config::{
            core::v3::TrafficDirection,
            listener::v3::{Filter, FilterChain, FilterChainMatch, Listener},
            route::v3::{
                Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost, route::Action,
                route_action::ClusterSpecifier, route_match::PathSpecifier,
            },
        },
        mesh::mesh_config::outbound_traffic_policy::Mode,
        seconds,
    },
};

const CLASS: ListenerClass = ListenerClass::SidecarOutbound;
const NAME: &str = "virtualOutbound";
const CATCH_ALL_CHAIN: &str = "virtualOutbound-catchall-tcp";
const DYNAMIC_DNS: &str = "allow_any_dynamic_dns";

/// The listener; `None` where traffic is not captured.
#[must_use]
pub fn build(builder: &Builder) -> Option<Listener> {
    if is_not_captured(builder) {
        return None;
    }
    let features = builder.features();
    let port = u32::try_from(builder.mesh().proxy_listen_port).unwrap_or_default();
    let wildcards = builder.wildcards();
    let further: &[&str] = match wildcards {
        [_, rest @ ..] if features.istio_dual_stack && !rest.is_empty() => rest,
        ["::"] if features.istio_enable_ipv4_outbound_listener_for_ipv6_clusters => &["0.0.0.0"],
        _ => &[],
    };
    let tproxy = builder.view.metadata.interception_mode == InterceptionMode::Tproxy;
    let dynamic = dynamic_dns::allow_any(builder);
    let mut filter_chains = vec![black_hole(builder, port)];
    filter_chains.extend(dynamic.then(|| dynamic_dns_chain(builder)));
    filter_chains.push(FilterChain {
        name: CATCH_ALL_CHAIN.to_string(),
        filters: fallthrough(builder),
        ..Default::default()
    });
    Some(Listener {
        name: NAME.to_string(),
        address: Some(address(wildcards.first().copied().unwrap_or_default(), port)),
        additional_addresses: additional(further, port),
        transparent: tproxy.then_some(true),
        use_original_dst: Some(true),
        filter_chains,
        traffic_direction: TrafficDirection::Outbound.into(),
        max_connections_to_accept_per_socket_event: accepts_per_event(builder),
        listener_filters: dynamic.then(http_inspector).into_iter().collect(),
        access_log: builder.telemetry(CLASS).logs.listener.clone(),
        ..Default::default()
    })
}

/// Traffic to the listener's own port would come back for ever.
fn black_hole(builder: &Builder, port: u32) -> FilterChain {
    let mut filters = builder.telemetry(CLASS).stats.tcp.clone();
    filters.push(tcp_filter(&to_cluster(BLACK_HOLE_CLUSTER, BLACK_HOLE_CLUSTER)));
    FilterChain {
        name: "virtualOutbound-blackhole".to_string(),
        filter_chain_match: Some(FilterChainMatch { destination_port: Some(port), ..Default::default() }),
        filters,
        ..Default::default()
    }
}

/// The filters for traffic to unknown destinations: through, to the egress proxy, or nowhere.
#[must_use]
pub fn fallthrough(builder: &Builder) -> Vec<Filter> {
    let cluster = match builder.outbound_mode() {
        Mode::RegistryOnly => BLACK_HOLE_CLUSTER.to_string(),
        Mode::AllowAny | Mode::AllowAnyDynamicDns => match &builder.scope.outbound_traffic_policy.egress_proxy {
            Some(proxy) => destination_cluster(proxy, None, 0),
            None => PASSTHROUGH_CLUSTER.to_string(),
        },
    };
    let mut proxy = to_cluster(&cluster, &cluster);
    proxy.idle_timeout = builder.idle_timeout;
    builder.telemetry(CLASS).logs.log_connections(&mut proxy);
    let mut filters = builder.telemetry(CLASS).stats.tcp.clone();
    filters.push(tcp_filter(&proxy));
    filters
}

/// Plaintext HTTP to unknown hosts: the proxy resolves the host itself.
fn dynamic_dns_chain(builder: &Builder) -> FilterChain {
    let headers = builder.headers(CLASS);
    let no_timeout = Some(seconds(0));
    #[allow(deprecated, reason = "as on the other catch-all routes; its successor means something else")]
    let action = RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster("AllowAnyDynamicDNSCluster".to_string())),
        timeout: no_timeout,
        max_grpc_timeout: no_timeout,
        append_x_forwarded_host: headers.x_forwarded_host,
        ..Default::default()
    };
    let route = Route {
        name: DYNAMIC_DNS.to_string(),
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix("/".to_string())),
            ..Default::default()
        }),
        action: Some(Action::Route(action)),
        ..Default::default()
    };
    let host = VirtualHost {
        name: DYNAMIC_DNS.to_string(),
        domains: vec!["*".to_string()],
        routes: vec![route],
        include_request_attempt_count: headers.attempt_count,
        ..Default::default()
    };
    let routes = RouteConfiguration {
        name: DYNAMIC_DNS.to_string(),
        virtual_hosts: vec![host],
        validate_clusters: Some(false),
        max_direct_response_body_size_bytes: Some(1024 * 1024),
        ignore_port_in_host_matching: true,
        ..Default::default()
    };
    let mut options = HttpOptions::new(builder, CLASS, Protocol::Http, Routes::Inline(Box::new(routes)));
    options.use_remote_address = builder.features().sidecar_use_remote_address;
    options.stat_prefix = hcm::delimited(&format!("outbound_{NAME}_{DYNAMIC_DNS}"));
    FilterChain {
        name: format!("{CATCH_ALL_CHAIN}-http"),
        filter_chain_match: Some(FilterChainMatch {
            application_protocols: builder.plaintext_http_alpns(),
            ..Default::default()
        }),
        filters: vec![hcm::filter(&hcm::build(builder, options))],
        ..Default::default()
    }
}
