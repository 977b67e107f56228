//! AUTO_PASSTHROUGH: mutual TLS between networks goes through by the cluster name in its SNI
//! (`outbound_.PORT_.SUBSET_.HOST`), without a VirtualService.

use super::chain::Chain;
use crate::{
    generate::{
        listener::{
            builder::Builder,
            tcp::{self, SingleDestination},
        },
        names::dns_srv_subset_key,
        proxy_config::ListenerClass,
        stat_name,
    },
    model::{Port, Protocol, Service, host},
    proto::networking::DestinationRule,
    push::gateways::GatewayServer,
};

/// ALPN names of the mesh's mutual TLS. Nothing else may pass, so that no client gets to a workload without it: the content of
/// the TLS cannot be seen here.
const MESH_ALPNS: [&str; 5] = ["istio", "istio-peer-exchange", "istio-http/1.0", "istio-http/1.1", "istio-h2"];

/// A chain for each port of each service that the server's hosts cover, and for each of its subsets.
pub(super) fn chains(builder: &Builder, server: &GatewayServer) -> Vec<Chain> {
    let covered = |service: &Service| server.sni_hosts.iter().any(|h| host::subset_of(&service.hostname, h));
    let mut chains = Vec::new();
    for service in builder.scope.services.iter().filter(|s| !s.mesh_external && covered(s)) {
        let rule = tcp::rule_of(builder, service).map(|merged| without_tunnel(&merged.rule));
        for port in service.ports.iter().filter(|p| p.protocol != Protocol::Udp) {
            chains.push(chain(builder, service, port, rule.as_ref(), ""));
            let subsets = rule.iter().flat_map(|r| &r.subsets);
            chains.extend(subsets.map(|s| chain(builder, service, port, rule.as_ref(), &s.name)));
        }
    }
    chains
}

fn chain(builder: &Builder, service: &Service, port: &Port, rule: Option<&DestinationRule>, subset: &str) -> Chain {
    let cluster = dns_srv_subset_key(subset, &service.hostname, port.port);
    let pattern = &builder.mesh().outbound_cluster_stat_name;
    let stat_prefix =
        if pattern.is_empty() { cluster.clone() } else { stat_name::fill_in(pattern, service, subset, port, 0) };
    let origin = format!("AUTO_PASSTHROUGH of {cluster}");
    // The policies of the far workload decide: the gateway sees no identity in the TLS that passes through.
    let target =
        SingleDestination { stat_prefix, cluster: cluster.clone(), subset, service: None, is_authorized: false };
    Chain {
        sni: vec![cluster],
        alpn: MESH_ALPNS.map(String::from).to_vec(),
        filters: tcp::single(builder, ListenerClass::Gateway, &target, port, rule, false),
        origin,
        ..Chain::default()
    }
}

/// The rule without tunnels: traffic that passes through is encrypted for the far end and cannot be wrapped.
fn without_tunnel(rule: &DestinationRule) -> DestinationRule {
    let mut rule = rule.clone();
    let of_subsets = rule.subsets.iter_mut().filter_map(|s| s.traffic_policy.as_mut());
    for policy in rule.traffic_policy.iter_mut().chain(of_subsets) {
        policy.tunnel = None;
    }
    rule
}
