//! Rules of VirtualServices: those that no request reaches, weights into nothing, and subsets that a gateway does not see.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    code::Code,
    message::Report,
    world::{World, is_place},
};
use crate::{
    model::{
        Config, Kind, Labels, Resolution, Service,
        labels::LabelLookup,
        validation::{Cause, unreachable},
    },
    proto::networking::{Destination, VirtualService},
};

pub(super) fn analyze(world: &World<'_>, report: &mut Report) {
    let own_subsets = own_subsets(world);
    for (index, config) in world.list(Kind::VirtualService) {
        let Some(service) = config.virtual_service() else { continue };
        rules_are_reached(report, index, service);
        weights_lead_somewhere(world, report, (index, config), service);
        subsets_reach_gateways(&own_subsets, report, (index, config), service);
    }
}

/// The name of a rule in messages: its own in quotes, else its number.
pub(super) fn rule_name(service: &VirtualService, family: &str, rule: usize) -> String {
    match service.http.get(rule).filter(|_| family == "http") {
        Some(http) if !http.name.is_empty() => format!("{:?}", http.name),
        _ => format!("#{rule}"),
    }
}

/// The name of a match of an HTTP rule in messages.
pub(super) fn match_name(service: &VirtualService, family: &str, rule: usize, condition: usize) -> String {
    let found = service.http.get(rule).filter(|_| family == "http").and_then(|http| http.r#match.get(condition));
    match found {
        Some(found) if !found.name.is_empty() => format!("{:?}", found.name),
        _ => format!("#{condition}"),
    }
}

fn rules_are_reached(report: &mut Report, index: usize, service: &VirtualService) {
    for found in unreachable(service) {
        let (family, rule) = (found.family, found.rule);
        let name = rule_name(service, family, rule);
        let path = format!("spec.{family}[{rule}]");
        let unused = |reason: &str| format!("VirtualService rule {name} not used ({reason}).");
        let ineffective = |this: &str, before: &str| {
            format!(
                "VirtualService rule {name} match {this} is not used (duplicate/overlapping match in rule {before})."
            )
        };
        let of_match = |condition: usize| match_name(service, family, rule, condition);
        match &found.cause {
            Cause::CatchAll { .. } => {
                let has_matches = match family {
                    "http" => service.http.get(rule).is_some_and(|http| !http.r#match.is_empty()),
                    "tcp" => service.tcp.get(rule).is_some_and(|tcp| !tcp.r#match.is_empty()),
                    _ => service.tls.get(rule).is_some_and(|tls| !tls.r#match.is_empty()),
                };
                let reason = if has_matches {
                    "route without matches defined before"
                } else {
                    "only the last rule can have no matches"
                };
                report.add(Code::VirtualServiceUnreachableRule, index, path, unused(reason));
            }
            Cause::AllRepeated => {
                let text = unused("all matches used by prior rules");
                report.add(Code::VirtualServiceUnreachableRule, index, path, text);
            }
            Cause::Repeated { condition, before } => {
                let text = ineffective(&of_match(*condition), &rule_name(service, family, *before));
                report.add(Code::VirtualServiceIneffectiveMatch, index, format!("{path}.match[{condition}]"), text);
            }
            Cause::Covered { condition, prefix, before, condition_before, prefix_before } => {
                let this = format!("{} of prefix {prefix}", of_match(*condition));
                let other = match_name(service, family, *before, *condition_before);
                let other = format!("{other} of prefix {prefix_before} on {}", rule_name(service, family, *before));
                let text = ineffective(&this, &other);
                report.add(Code::VirtualServiceIneffectiveMatch, index, format!("{path}.match[{condition}]"), text);
            }
        }
    }
}

/// The weighted destinations of one rule, with the path of the rule.
fn shares(service: &VirtualService) -> Vec<(String, Vec<(&Destination, i32)>)> {
    let mut all = Vec::new();
    for (i, http) in service.http.iter().enumerate() {
        let list = http.route.iter().filter_map(|route| Some((route.destination.as_ref()?, route.weight)));
        all.push((format!("spec.http[{i}]"), list.collect()));
    }
    let tcp = service.tcp.iter().enumerate().map(|(i, rule)| (format!("spec.tcp[{i}]"), &rule.route));
    let tls = service.tls.iter().enumerate().map(|(i, rule)| (format!("spec.tls[{i}]"), &rule.route));
    for (path, routes) in tcp.chain(tls) {
        let list = routes.iter().filter_map(|route| Some((route.destination.as_ref()?, route.weight)));
        all.push((path, list.collect()));
    }
    all
}

fn weights_lead_somewhere(
    world: &World<'_>,
    report: &mut Report,
    (index, config): (usize, &Config),
    service: &VirtualService,
) {
    let own = &*config.meta.namespace;
    let readers = world.readers(&service.export_to, own);
    for (path, routes) in shares(service) {
        let total: i64 = routes.iter().map(|(_, weight)| i64::from(*weight)).sum();
        for (j, (destination, weight)) in routes.iter().enumerate() {
            let subset = if destination.subset.is_empty() {
                String::new()
            } else {
                format!(" (subset {:?})", destination.subset)
            };
            let name = format!("{:?}{subset}", destination.host);
            if *weight == 0 && routes.len() > 1 {
                let text = format!("Destination {name} has weight 0: it gets no request.");
                report.add(Code::DestinationWithoutShare, index, format!("{path}.route[{j}].weight"), text);
                continue;
            }
            let Some(found) = world.service(&world.full_host(&destination.host, own), &readers) else { continue };
            let Some(why) = emptiness(world, found, &destination.subset) else { continue };
            let share = if total == 0 { 100 } else { i64::from(*weight) * 100 / total };
            let text = format!("{share} % of the requests of this rule go to {name}, {why}: they fail with 503.");
            report.add(Code::WeightIntoNothing, index, format!("{path}.route[{j}].destination"), text);
        }
    }
}

/// Why a destination has no endpoint; `None` where it has one, or where nothing shows that it has none.
fn emptiness(world: &World<'_>, service: &Arc<Service>, subset: &str) -> Option<String> {
    if service.resolution != Resolution::ClientSideLB || !service.external_name.is_empty() {
        return None;
    }
    let wanted = if subset.is_empty() { Labels::new() } else { world.subset(&service.hostname, subset)?.clone() };
    let verdict = selects_something(world, service, &wanted)?;
    let what = if subset.is_empty() { "which no workload serves" } else { "which selects no workload" };
    (!verdict).then(|| what.to_string())
}

/// Whether a workload or endpoint of the service has the labels; `None` where no workload of the service is shown at all.
pub(super) fn selects_something(world: &World<'_>, service: &Service, wanted: &Labels) -> Option<bool> {
    let endpoints = world.context.endpoints().get(&service.hostname, &service.namespace);
    let mut is_shown = false;
    for endpoint in endpoints.iter().flat_map(|set| set.iter()) {
        is_shown = true;
        if fits(wanted, &*endpoint.labels, false) {
            return Some(true);
        }
    }
    if !service.label_selectors.is_empty() {
        let own = world.selected(&service.label_selectors, Some(&service.namespace));
        for workload in own.filter(|workload| !workload.is_assumed) {
            is_shown = true;
            if fits(wanted, &*workload.labels, workload.has_place) {
                return Some(true);
            }
        }
        is_shown |= world.workloads.iter().any(|w| w.namespace == &*service.namespace && !w.is_assumed);
    }
    is_shown.then_some(false)
}

/// Whether labels are those wanted. One of the place of a workload may have any value, unless its node is
/// shown.
fn fits(wanted: &Labels, labels: &impl LabelLookup, has_place: bool) -> bool {
    wanted.iter().all(|(key, value)| labels.value(key).map_or_else(|| is_place(key) && !has_place, |own| own == value))
}

/// The VirtualServices whose routes to one of their own hosts name a subset, by that host.
fn own_subsets<'a>(world: &World<'a>) -> BTreeMap<&'a str, BTreeSet<String>> {
    let mut by_host: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (_, config) in world.list(Kind::VirtualService) {
        let Some(service) = config.virtual_service() else { continue };
        let routes = service.http.iter().flat_map(|http| &http.route).filter_map(|route| route.destination.as_ref());
        for destination in routes.filter(|d| !d.subset.is_empty() && service.hosts.contains(&d.host)) {
            let name = format!("{}/{}", config.meta.namespace, config.meta.name);
            by_host.entry(&destination.host).or_default().insert(name);
        }
    }
    by_host
}

fn subsets_reach_gateways(
    own_subsets: &BTreeMap<&str, BTreeSet<String>>,
    report: &mut Report,
    (index, config): (usize, &Config),
    service: &VirtualService,
) {
    if service.gateways.is_empty() {
        return;
    }
    let name = format!("{}/{}", config.meta.namespace, config.meta.name);
    for (i, http) in service.http.iter().enumerate() {
        for (j, route) in http.route.iter().enumerate() {
            let Some(destination) = route.destination.as_ref().filter(|d| d.subset.is_empty()) else { continue };
            for other in own_subsets.get(destination.host.as_str()).into_iter().flatten() {
                let text =
                    format!("Subset in virtual service {other} has no effect on ingress gateway {name} requests");
                let path = format!("spec.http[{i}].route[{j}].destination.host");
                report.add(Code::IngressRouteRulesNotAffected, index, path, text);
            }
        }
    }
}
