//! TCP and TLS chains of one service port: from VirtualServices where they match, else straight to the service
//! (Istio's `tls.go`).

use std::{collections::HashSet, sync::Arc};

use super::OutboundService;
use crate::{
    generate::{
        addresses,
        listener::{
            builder::Builder,
            filter_chain::Chain,
            tcp::{self, SingleDestination},
        },
        names::{Direction, config_metadata, subset_key},
        proxy_config::ListenerClass,
        route::alternative_domains,
        stat_name,
    },
    model::{Config, Labels, Port, Registry, Service, host, labels, service::UNSPECIFIED_IP},
    proto::networking::{L4MatchAttributes, RouteDestination, TlsMatchAttributes},
};

const CLASS: ListenerClass = ListenerClass::SidecarOutbound;

/// All chains for one service on one port. `virtual_services` are those with TLS or TCP routes, in order.
#[must_use]
pub fn build(builder: &Builder, target: &OutboundService, virtual_services: &[Arc<Config>]) -> Vec<Chain> {
    let configs: Vec<&Arc<Config>> = virtual_services
        .iter()
        .filter(|c| {
            let hosts = c.virtual_service().map_or(&[][..], |v| &v.hosts);
            hosts.iter().any(|h| host::matches(h, &target.service.hostname))
        })
        .collect();
    if target.port.protocol.is_tls() { tls(builder, target, &configs) } else { plain(builder, target, &configs) }
}

fn tls(builder: &Builder, target: &OutboundService, configs: &[&Arc<Config>]) -> Vec<Chain> {
    let mut cidrs = target.cidrs.clone();
    let mut handled = HashSet::new();
    let mut chains = Vec::new();
    for config in configs {
        let routes = config.virtual_service().map_or(&[][..], |v| &v.tls);
        for route in routes.iter().filter(|r| !r.route.is_empty()) {
            for condition in route.r#match.iter().filter(|m| applies(builder, target.port.port, &Static::of_tls(m))) {
                // Subnets of one match stay in force for the ones behind it, as in Istio.
                if !condition.destination_subnets.is_empty() && target.port.port > 0 {
                    cidrs.clone_from(&condition.destination_subnets);
                }
                // Of two matches that look alike to the proxy the second could never be reached.
                if handled.insert((condition.sni_hosts.join(","), condition.destination_subnets.join(","))) {
                    let mut chain = routed(builder, target, &route.route, config, cidrs.clone());
                    chain.sni_hosts.clone_from(&condition.sni_hosts);
                    chains.push(chain);
                }
            }
        }
    }
    if chains.is_empty() {
        let sni_hosts =
            if matches_server_name(builder, target, &cidrs) { server_names(builder, target) } else { vec![] };
        chains.push(Chain { sni_hosts, ..direct(builder, target, cidrs) });
    }
    chains.retain(|c| !c.filters.is_empty());
    chains
}

/// Whether the address does not tell services apart, so that only the server name can.
fn matches_server_name(builder: &Builder, target: &OutboundService, cidrs: &[String]) -> bool {
    let service = &target.service;
    if target.pod_cidrs {
        return false;
    }
    let wildcard = builder.view.wildcard();
    let mut address = addresses::address(service, builder.view, builder.features());
    if address.contains('/') {
        address.clear();
    }
    if service.registry == Registry::External && is_ipv6_only(builder) && address == UNSPECIFIED_IP {
        address = "::".to_string();
    }
    !cidrs.is_empty()
        || address.is_empty()
        || (address == wildcard && target.binding.primary() == wildcard)
        || tcp::is_dynamic_wildcard(service)
}

/// Whether the proxy has IPv6 addresses only.
#[must_use]
pub fn is_ipv6_only(builder: &Builder) -> bool {
    builder.view.ipv6 && !builder.view.ipv4
}

fn server_names(builder: &Builder, target: &OutboundService) -> Vec<String> {
    let service = &target.service;
    let mut names = vec![service.hostname.to_string()];
    for (alias, _) in &service.aliases {
        names.push(alias.to_string());
        names.extend(alternative_domains(alias, None, &builder.view.dns_domain, builder.features()));
    }
    names
}

fn plain(builder: &Builder, target: &OutboundService, configs: &[&Arc<Config>]) -> Vec<Chain> {
    let mut chains: Vec<Chain> = Vec::new();
    let mut default_added = false;
    'configs: for config in configs {
        let routes = config.virtual_service().map_or(&[][..], |v| &v.tcp);
        for route in routes.iter().filter(|r| !r.route.is_empty()) {
            let mut subnets: Vec<String> = Vec::new();
            let matching = route.r#match.iter().filter(|m| applies(builder, target.port.port, &Static::of_tcp(m)));
            // A match without subnets takes all traffic; on a socket of the file system there are no addresses to match.
            let mut catches_all = route.r#match.is_empty();
            for condition in matching {
                if condition.destination_subnets.is_empty() || target.port.port == 0 {
                    catches_all = true;
                    break;
                }
                subnets.extend(condition.destination_subnets.iter().cloned());
            }
            if catches_all {
                chains.push(routed(builder, target, &route.route, config, target.cidrs.clone()));
                default_added = true;
                break 'configs;
            }
            if !subnets.is_empty() {
                let same = sorted(&subnets) == sorted(&target.cidrs);
                let chain = routed(builder, target, &route.route, config, subnets);
                chains.push(Chain { metadata: None, ..chain });
                default_added |= same;
            }
        }
    }
    if !default_added {
        chains.push(direct(builder, target, target.cidrs.clone()));
    }
    chains.retain(|c| !c.filters.is_empty());
    chains
}

fn sorted(texts: &[String]) -> Vec<&String> {
    let mut sorted: Vec<&String> = texts.iter().collect();
    sorted.sort();
    sorted
}

/// A chain by the routes of a VirtualService.
fn routed(
    builder: &Builder,
    target: &OutboundService,
    routes: &[RouteDestination],
    config: &Config,
    destination_cidrs: Vec<String>,
) -> Chain {
    Chain {
        metadata: Some(config_metadata(&config.meta, config.kind())),
        destination_cidrs,
        filters: tcp::outbound_routes(builder, CLASS, routes, &target.port, config, false),
        ..Default::default()
    }
}

/// A chain straight to the service. On a port that only a Sidecar's listener has, the service's only port is meant.
fn direct(builder: &Builder, target: &OutboundService, destination_cidrs: Vec<String>) -> Chain {
    let service: &Service = &target.service;
    let port = match service.ports.as_slice() {
        [only] => only.port,
        _ => target.port.port,
    };
    let cluster = subset_key(Direction::Outbound, "", &service.hostname, port);
    let pattern = &builder.mesh().outbound_cluster_stat_name;
    let stat_prefix = if pattern.is_empty() {
        cluster.clone()
    } else {
        stat_name::fill_in(pattern, service, "", &Port { port, ..Default::default() }, 0)
    };
    let rule = tcp::rule_of(builder, service);
    let service = Some(service).filter(|s| tcp::is_dynamic_wildcard(s));
    let destination = SingleDestination { stat_prefix, cluster, subset: "", service, is_authorized: true };
    let filters = tcp::single(builder, CLASS, &destination, &target.port, rule.as_ref().map(|r| &*r.rule), false);
    Chain { destination_cidrs, filters, ..Default::default() }
}

/// The part of a match that is known when the configuration is made.
struct Static<'a> {
    gateways: &'a [String],
    labels: &'a Labels,
    port: u32,
    namespace: &'a str,
}

impl<'a> Static<'a> {
    fn of_tls(given: &'a TlsMatchAttributes) -> Self {
        Self {
            gateways: &given.gateways,
            labels: &given.source_labels,
            port: given.port,
            namespace: &given.source_namespace,
        }
    }

    fn of_tcp(given: &'a L4MatchAttributes) -> Self {
        Self {
            gateways: &given.gateways,
            labels: &given.source_labels,
            port: given.port,
            namespace: &given.source_namespace,
        }
    }
}

fn applies(builder: &Builder, port: u32, condition: &Static) -> bool {
    (condition.gateways.is_empty() || condition.gateways.iter().any(|g| g == "mesh"))
        && labels::matches(condition.labels, &builder.view.labels)
        && (condition.port == 0 || condition.port == port)
        && (condition.namespace.is_empty() || *condition.namespace == *builder.view.namespace)
}
