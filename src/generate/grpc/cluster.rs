//! Clusters of gRPC: EDS by ADS, or the one DNS name that gRPC can resolve (gRFC A37); the load balancers and limits that gRPC
//! supports, TLS only where a DestinationRule sets `ISTIO_MUTUAL`.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    not_applied::{self, NotApplied},
    patched,
    tls::{TRANSPORT_SOCKET, common_context},
};
use crate::{
    generate::{
        endpoint::{ClusterTarget, Discovery, DnsName, EndpointClient, EndpointInputs, destination_rule},
        envoy_filter::{Patching, service_context},
        names::{self, Direction, parse_subset_key},
    },
    model::{Resolution, Service},
    proto::{
        envoy::{
            config::{
                cluster::v3::{
                    CircuitBreakers, Cluster,
                    circuit_breakers::Thresholds,
                    cluster::{
                        ClusterDiscoveryType, DiscoveryType, EdsClusterConfig, LbConfig, LbPolicy, RingHashLbConfig,
                    },
                },
                core::v3::{
                    AggregatedConfigSource, ConfigSource, SelfConfigSource, TransportSocket,
                    config_source::ConfigSourceSpecifier, transport_socket::ConfigType,
                },
                endpoint::v3::{
                    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
                },
            },
            extensions::transport_sockets::tls::v3::UpstreamTlsContext,
        },
        networking::{
            TrafficPolicy,
            client_tls_settings::TlSmode,
            load_balancer_settings::{
                ConsistentHashLb, LbPolicy as RuleLb, SimpleLb, consistent_hash_lb::HashAlgorithm,
            },
        },
        to_any,
    },
    push::{
        ProxyView, PushContext,
        destination_rules::{self, merge_subset_policy},
    },
};

/// Default size of a hash ring.
const DEFAULT_RING_SIZE: u64 = 1024;

/// The clusters of these names, each with the settings that gRPC does not apply; names of unknown services, ports and subsets
/// have no cluster.
#[must_use]
pub fn clusters(context: &PushContext, view: &ProxyView, wanted: &[String]) -> Vec<(Cluster, Vec<NotApplied>)> {
    let mut by_default: BTreeMap<(String, u32), BTreeSet<String>> = BTreeMap::new();
    for name in wanted {
        if let Some((_, subset, host, port)) = parse_subset_key(name) {
            by_default.entry((host.to_string(), port)).or_default().insert(subset.to_string());
        }
    }
    let scope = context.scope(view);
    let client = EndpointClient::of(view);
    let mut patching = Patching::new(&view.patches, service_context(view));
    let mut all = Vec::new();
    for ((host, number), subsets) in by_default {
        let Some(service) = scope.services_by_host.get(host.as_str()) else { continue };
        let Some(port) = service.port_by_number(number) else { continue };
        let merged = context.destination_rules.lookup(&context.inputs, view, service);
        let rule = merged.as_ref().map(|m| &*m.rule);
        let top = rule.and_then(|r| r.traffic_policy.as_ref());
        for subset in &subsets {
            let of_subset = rule.and_then(|r| destination_rules::subset(r, subset));
            if !subset.is_empty() && of_subset.is_none() {
                continue;
            }
            let policy = merge_subset_policy(top, of_subset.and_then(|s| s.traffic_policy.as_ref()), Some(number));
            let target = ClusterTarget { service, port, subset, rule: merged.as_deref() };
            let discovery = discovery(context, view, &client, target);
            let name = names::subset_key(Direction::Outbound, subset, &service.hostname, number);
            let not_applied = settings_not_applied(&name, target, policy.as_ref(), &discovery);
            let made = cluster(context, service, name, discovery.name, policy.as_ref());
            all.push((patched::cluster(&mut patching, made), not_applied));
        }
    }
    all
}

/// The way to the endpoints. An ExternalName service that stands for no service of the mesh is the name that it says.
fn discovery(context: &PushContext, view: &ProxyView, client: &EndpointClient, target: ClusterTarget<'_>) -> Discovery {
    let ClusterTarget { service, port, .. } = target;
    match service.resolution {
        Resolution::ClientSideLB => Discovery::default(),
        Resolution::Alias => {
            let of_port = |host: &str| DnsName { host: host.to_string(), port: port.port };
            Discovery { name: context.scope(view).outside_name(service).map(of_port), ..Discovery::default() }
        }
        _ => EndpointInputs::of(context, view, client, target, String::new()).discovery(),
    }
}

/// The settings of a cluster that gRPC does not apply, each with its object.
fn settings_not_applied(
    cluster: &str,
    target: ClusterTarget<'_>,
    policy: Option<&TrafficPolicy>,
    discovery: &Discovery,
) -> Vec<NotApplied> {
    let of_rule = || target.rule.map(destination_rule);
    let hash = policy.and_then(hash_of);
    let hash = if discovery.name.is_some() {
        hash.map(|_| "consistentHash among the addresses of a DNS name")
    } else {
        hash.and_then(not_applied::hash_key)
    };
    let tls = policy.and_then(|p| p.tls.as_ref()).and_then(|tls| not_applied::tls_mode(tls.mode()));
    let names = not_applied::names(discovery).map(|names| (not_applied::object_of(target.service), names));
    let said = |object, what: String| NotApplied { object, message: format!("cluster {cluster}: {what}") };
    let of_policy =
        hash.into_iter().chain(tls).map(|what| (of_rule(), format!("proxyless gRPC does not apply {what}")));
    of_policy.chain(names).map(|(object, what)| said(object, what)).collect()
}

fn cluster(
    context: &PushContext,
    service: &Service,
    name: String,
    resolved: Option<DnsName>,
    policy: Option<&TrafficPolicy>,
) -> Cluster {
    let mut cluster = Cluster {
        alt_stat_name: format!("{name};"),
        // gRPC-Java limits concurrent requests only where it reports load.
        lrs_server: Some(ConfigSource {
            config_source_specifier: Some(ConfigSourceSpecifier::Self_(SelfConfigSource::default())),
            ..ConfigSource::default()
        }),
        name,
        ..Cluster::default()
    };
    match resolved {
        Some(resolved) => resolve(&mut cluster, &resolved),
        None => ask_for_endpoints(&mut cluster),
    }
    if let Some(policy) = policy {
        apply_load_balancer(&mut cluster, policy);
        apply_limits(&mut cluster, policy);
        if let Some(tls) = policy.tls.as_ref().filter(|t| t.mode() == TlSmode::IstioMutual) {
            cluster.transport_socket = Some(mutual_tls(context, service, &tls.subject_alt_names));
        }
    }
    cluster
}

fn ask_for_endpoints(cluster: &mut Cluster) {
    cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into()));
    cluster.eds_cluster_config = Some(EdsClusterConfig {
        service_name: cluster.name.clone(),
        eds_config: Some(ConfigSource {
            config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource::default())),
            ..ConfigSource::default()
        }),
    });
}

/// gRPC demands exactly one locality with one endpoint (gRFC A37).
fn resolve(cluster: &mut Cluster, name: &DnsName) {
    cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(DiscoveryType::LogicalDns.into()));
    let address = Some(names::address(&name.host, name.port));
    let endpoint = LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(Endpoint { address, ..Endpoint::default() })),
        ..LbEndpoint::default()
    };
    cluster.load_assignment = Some(ClusterLoadAssignment {
        cluster_name: cluster.name.clone(),
        endpoints: vec![LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..LocalityLbEndpoints::default() }],
        ..ClusterLoadAssignment::default()
    });
}

fn hash_of(policy: &TrafficPolicy) -> Option<&ConsistentHashLb> {
    match policy.load_balancer.as_ref()?.lb_policy.as_ref()? {
        RuleLb::ConsistentHash(hash) => Some(hash),
        _ => None,
    }
}

fn apply_load_balancer(cluster: &mut Cluster, policy: &TrafficPolicy) {
    match policy.load_balancer.as_ref().and_then(|l| l.lb_policy.as_ref()) {
        Some(RuleLb::ConsistentHash(hash)) => {
            let ring = match &hash.hash_algorithm {
                Some(HashAlgorithm::RingHash(ring)) if ring.minimum_ring_size != 0 => ring.minimum_ring_size,
                #[allow(deprecated, reason = "still read by Istio")]
                _ if hash.minimum_ring_size != 0 => hash.minimum_ring_size,
                _ => DEFAULT_RING_SIZE,
            };
            cluster.set_lb_policy(LbPolicy::RingHash);
            cluster.lb_config = Some(LbConfig::RingHashLbConfig(RingHashLbConfig {
                minimum_ring_size: Some(ring),
                ..RingHashLbConfig::default()
            }));
        }
        Some(RuleLb::Simple(simple)) if *simple == i32::from(SimpleLb::LeastRequest) => {
            cluster.set_lb_policy(LbPolicy::LeastRequest);
        }
        _ => {}
    }
}

/// gRPC applies the limit of concurrent requests only (gRFC A32).
fn apply_limits(cluster: &mut Cluster, policy: &TrafficPolicy) {
    let limit = policy.connection_pool.as_ref().and_then(|p| p.http.as_ref()).map_or(0, |h| h.http2_max_requests);
    if let Some(limit) = u32::try_from(limit).ok().filter(|l| *l > 0) {
        cluster.circuit_breakers = Some(CircuitBreakers {
            thresholds: vec![Thresholds { max_requests: Some(limit), ..Thresholds::default() }],
            ..CircuitBreakers::default()
        });
    }
}

/// Servers prove one of the names that the rule demands, as Envoy's clusters have it; without such names, of the service's own
/// accounts. Istio leaves the rule's names out for gRPC, which would take any server of the mesh.
fn mutual_tls(context: &PushContext, service: &Service, demanded: &[String]) -> TransportSocket {
    let mut sans: BTreeSet<String> = demanded.iter().cloned().collect();
    if demanded.is_empty() {
        sans.extend(service.service_accounts.iter().cloned());
        let set = context.endpoints().get(&service.hostname, &service.namespace);
        sans.extend(set.iter().flat_map(|set| set.service_accounts.iter().map(ToString::to_string)));
    }
    let tls = UpstreamTlsContext {
        common_tls_context: Some(common_context(&sans.into_iter().collect::<Vec<_>>())),
        ..UpstreamTlsContext::default()
    };
    TransportSocket { name: TRANSPORT_SOCKET.to_string(), config_type: Some(ConfigType::TypedConfig(to_any(&tls))) }
}
