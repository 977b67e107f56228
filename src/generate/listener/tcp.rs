//! Network filters: the TCP proxy with one or several clusters, the protocol filters for Mongo, Redis and MySQL, and Istio's
//! metadata exchange and metrics where the proxy has them (Istio's `networkfilter.go`).

use serde_json::json;

use super::{
    builder::Builder,
    dynamic_dns,
    filter::{METADATA_EXCHANGE, network_filter, network_filter_of_any, peer_metadata},
};
use crate::{
    generate::{names::host_port, proxy_config::ListenerClass, route::destination_cluster, stat_name},
    model::{Config, Port, Protocol, Resolution, Service, host},
    proto::{
        envoy::{
            config::listener::v3::Filter,
            extensions::filters::network::{
                mongo_proxy::v3::MongoProxy,
                mysql_proxy::v3::MySqlProxy,
                redis_proxy::v3::{
                    RedisProxy,
                    redis_proxy::{ConnPoolSettings, PrefixRoutes, prefix_routes},
                },
                tcp_proxy::v3::{
                    TcpProxy,
                    tcp_proxy::{ClusterSpecifier, TunnelingConfig, WeightedCluster, weighted_cluster::ClusterWeight},
                },
            },
            r#type::v3::{HashPolicy, hash_policy},
        },
        networking::{
            DestinationRule, RouteDestination, TrafficPolicy,
            load_balancer_settings::{LbPolicy, consistent_hash_lb::HashKey},
        },
        seconds,
    },
    push::extensions::Phase,
};

/// Takes traffic that has nowhere to go.
pub const BLACK_HOLE_CLUSTER: &str = "BlackHoleCluster";
/// Sends traffic where its client wanted it to go.
pub const PASSTHROUGH_CLUSTER: &str = "PassthroughCluster";

/// The filter of a finished TCP proxy.
#[must_use]
pub fn tcp_filter(proxy: &TcpProxy) -> Filter {
    network_filter("envoy.filters.network.tcp_proxy", proxy)
}

/// A TCP proxy to one cluster, without an idle timeout and without an access log.
#[must_use]
pub fn to_cluster(stat_prefix: &str, cluster: &str) -> TcpProxy {
    TcpProxy {
        stat_prefix: stat_prefix.to_string(),
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_string())),
        ..Default::default()
    }
}

/// Istio's TCP metadata exchange, for inbound chains of Istio's proxies; on the outbound side it is a filter of the cluster.
#[must_use]
pub fn metadata_exchange(builder: &Builder) -> Option<Filter> {
    (builder.features().enable_metadata_exchange && builder.is_istio_proxy()).then(|| {
        let config = json!({"protocol": "istio-peer-exchange", "enable_discovery": true});
        network_filter_of_any(
            METADATA_EXCHANGE,
            peer_metadata("envoy.tcp.metadataexchange.config.MetadataExchange", builder.features(), config),
        )
    })
}

/// The terminal filters for a port's protocol around a finished TCP proxy. MySQL's filter is in Istio's and in contrib builds
/// of Envoy only: a stock one would refuse the listener.
#[must_use]
pub fn protocol_stack(builder: &Builder, protocol: Protocol, proxy: &TcpProxy, cluster: &str) -> Vec<Filter> {
    let features = builder.features();
    let stat_prefix = proxy.stat_prefix.clone();
    match protocol {
        Protocol::Mongo if features.enable_mongo_filter => {
            let config = MongoProxy { stat_prefix, ..Default::default() };
            vec![network_filter("envoy.filters.network.mongo_proxy", &config), tcp_filter(proxy)]
        }
        Protocol::Redis if features.enable_redis_filter => vec![redis(stat_prefix, cluster)],
        Protocol::Mysql if features.enable_mysql_filter && builder.is_istio_proxy() => {
            let config = MySqlProxy { stat_prefix, ..Default::default() };
            vec![network_filter("envoy.filters.network.mysql_proxy", &config), tcp_filter(proxy)]
        }
        _ => vec![tcp_filter(proxy)],
    }
}

fn redis(stat_prefix: String, cluster: &str) -> Filter {
    let config = RedisProxy {
        latency_in_micros: true,
        stat_prefix,
        settings: Some(ConnPoolSettings { op_timeout: Some(seconds(5)), ..Default::default() }),
        prefix_routes: Some(PrefixRoutes {
            catch_all_route: Some(prefix_routes::Route { cluster: cluster.to_string(), ..Default::default() }),
            ..Default::default()
        }),
        ..Default::default()
    };
    network_filter("envoy.filters.network.redis_proxy", &config)
}

/// All filters of a TCP chain: metadata exchange, authorization, extensions, metrics, SNI resolution, `terminal`.
/// `service` is given only where the chain is that of a wildcard service resolved on demand. The AuthorizationPolicies of the
/// proxy apply where `is_authorized`, but never to the outbound traffic of a sidecar.
#[must_use]
pub fn complete(
    builder: &Builder,
    class: ListenerClass,
    port: u32,
    terminal: Vec<Filter>,
    include_mx: bool,
    service: Option<&Service>,
    is_authorized: bool,
) -> Vec<Filter> {
    let mut filters = Vec::with_capacity(terminal.len() + 2);
    filters.extend(include_mx.then(|| metadata_exchange(builder)).flatten());
    let access = (is_authorized && class != ListenerClass::SidecarOutbound).then(|| &builder.access().authorization);
    let extensions = |phase| builder.extensions().network(phase, class, port);
    filters.extend(access.into_iter().flat_map(|access| access.custom_tcp.iter().cloned()));
    filters.extend(extensions(Phase::Authn).chain(extensions(Phase::Authz)));
    filters.extend(access.into_iter().flat_map(|access| access.tcp.iter().cloned()));
    filters.extend(extensions(Phase::Stats).chain(extensions(Phase::Unspecified)));
    filters.extend(builder.telemetry(class).stats.tcp.iter().cloned());
    if class == ListenerClass::SidecarOutbound {
        let resolved = service.filter(|s| is_dynamic_wildcard(s));
        filters.extend(resolved.map(|s| dynamic_dns::sni_filter(builder, &s.hostname, port)));
    }
    filters.extend(terminal);
    filters
}

/// Whether the hosts of a service are resolved on demand.
#[must_use]
pub fn is_dynamic_wildcard(service: &Service) -> bool {
    host::is_wildcard(&service.hostname) && service.resolution == Resolution::DynamicDns
}

/// The filters of an outbound (or gateway) TCP chain for the routes of a VirtualService. Routes without weight are left out;
/// no route at all gives no filters.
#[must_use]
pub fn outbound_routes(
    builder: &Builder,
    class: ListenerClass,
    routes: &[RouteDestination],
    port: &Port,
    config: &Config,
    include_mx: bool,
) -> Vec<Filter> {
    let Some(first) = routes.first().and_then(|r| r.destination.as_ref()) else {
        return Vec::new();
    };
    let service = builder.service(&first.host).cloned();
    let rule = service.as_ref().and_then(|s| rule_of(builder, s));
    let rule = rule.as_ref().map(|r| &*r.rule);
    if routes.len() > 1 {
        return weighted(builder, class, routes, port, config, rule, include_mx);
    }
    let cluster = destination_cluster(first, service.as_deref(), port.port);
    let pattern = &builder.mesh().outbound_cluster_stat_name;
    let stat_prefix = match &service {
        Some(service) if !pattern.is_empty() => stat_name::fill_in(pattern, service, &first.subset, port, 0),
        _ => cluster.clone(),
    };
    let target = SingleDestination { stat_prefix, cluster, subset: &first.subset, service: None, is_authorized: true };
    single(builder, class, &target, port, rule, include_mx)
}

/// One cluster that a TCP chain goes to.
#[derive(Debug)]
pub struct SingleDestination<'a> {
    /// Prefix of the TCP proxy's statistics.
    pub stat_prefix: String,
    /// Name of the destination cluster.
    pub cluster: String,
    /// Subset, whose settings count before the rule's own.
    pub subset: &'a str,
    /// The service, if its hosts are resolved on demand.
    pub service: Option<&'a Service>,
    /// The AuthorizationPolicies of the proxy apply.
    pub is_authorized: bool,
}

/// The filters of a TCP chain to one cluster, with the settings of its DestinationRule.
#[must_use]
pub fn single(
    builder: &Builder,
    class: ListenerClass,
    target: &SingleDestination,
    port: &Port,
    rule: Option<&DestinationRule>,
    include_mx: bool,
) -> Vec<Filter> {
    let mut proxy = to_cluster(&target.stat_prefix, &target.cluster);
    apply_rule(builder, &mut proxy, rule, target.subset);
    builder.telemetry(class).logs.log_connections(&mut proxy);
    let terminal = protocol_stack(builder, port.protocol, &proxy, &target.cluster);
    complete(builder, class, port.port, terminal, include_mx, target.service, target.is_authorized)
}

fn weighted(
    builder: &Builder,
    class: ListenerClass,
    routes: &[RouteDestination],
    port: &Port,
    config: &Config,
    rule: Option<&DestinationRule>,
    include_mx: bool,
) -> Vec<Filter> {
    let clusters: Vec<ClusterWeight> = routes
        .iter()
        .filter(|route| route.weight > 0)
        .filter_map(|route| {
            let destination = route.destination.as_ref()?;
            let service = builder.service(&destination.host);
            let name = destination_cluster(destination, service.map(|s| &**s), port.port);
            Some(ClusterWeight { name, weight: u32::try_from(route.weight).ok()?, ..Default::default() })
        })
        .collect();
    let Some(first) = clusters.first().map(|c| c.name.clone()) else {
        return Vec::new();
    };
    let mut proxy = TcpProxy {
        stat_prefix: format!("{}.{}", config.meta.name, config.meta.namespace),
        cluster_specifier: Some(ClusterSpecifier::WeightedClusters(WeightedCluster { clusters })),
        ..Default::default()
    };
    apply_rule(builder, &mut proxy, rule, "");
    builder.telemetry(class).logs.log_connections(&mut proxy);
    let terminal = protocol_stack(builder, port.protocol, &proxy, &first);
    complete(builder, class, port.port, terminal, include_mx, None, true)
}

/// The DestinationRule of a service as the proxy sees it.
#[must_use]
pub fn rule_of(builder: &Builder, service: &Service) -> Option<std::sync::Arc<crate::push::MergedDestinationRule>> {
    builder.context.destination_rules.lookup(&builder.context.inputs, builder.view, service)
}

/// Timeouts, source IP hashing and tunnelling of a rule.
fn apply_rule(builder: &Builder, proxy: &mut TcpProxy, rule: Option<&DestinationRule>, subset: &str) {
    let policy = rule.and_then(|r| r.traffic_policy.as_ref());
    let tcp = policy.and_then(|p| p.connection_pool.as_ref()).and_then(|p| p.tcp.as_ref());
    proxy.idle_timeout = tcp.and_then(|t| t.idle_timeout).or(builder.idle_timeout);
    proxy.max_downstream_connection_duration = tcp.and_then(|t| t.max_connection_duration);
    let Some(rule) = rule else {
        return;
    };
    let of_subset = rule.subsets.iter().find(|s| s.name == subset).and_then(|s| s.traffic_policy.as_ref());
    let balancer = |p: Option<&TrafficPolicy>| p.and_then(|p| p.load_balancer.clone());
    let source_ip = |lb: &crate::proto::networking::LoadBalancerSettings| match &lb.lb_policy {
        Some(LbPolicy::ConsistentHash(hash)) => matches!(hash.hash_key, Some(HashKey::UseSourceIp(true))),
        _ => false,
    };
    let balancer = balancer(of_subset).or_else(|| balancer(policy));
    if balancer.as_ref().is_some_and(source_ip) {
        let policy_specifier = Some(hash_policy::PolicySpecifier::SourceIp(hash_policy::SourceIp {}));
        proxy.hash_policy = vec![HashPolicy { policy_specifier }];
    }
    let tunnel = if subset.is_empty() { policy } else { of_subset }.and_then(|p| p.tunnel.as_ref());
    proxy.tunneling_config = tunnel.map(|t| TunnelingConfig {
        hostname: host_port(&t.target_host, t.target_port),
        use_post: t.protocol == "POST",
        ..Default::default()
    });
}
