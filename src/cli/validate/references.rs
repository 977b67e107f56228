//! References of VirtualServices to Gateways, hosts and subsets that are not among the objects, and to hosts of others.
//!
//! Hosts are looked for only where some service is there, and subsets only where some DestinationRule is: files often hold one
//! part of a mesh alone.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    model::{Config, Kind, host},
    proto::networking::{Destination, VirtualService},
    push::PushContext,
    sources::Warned,
};

/// The reserved name of the mesh among gateways.
const MESH: &str = "mesh";

/// A warning for each object that refers to something absent, and for each that takes the routes of another namespace's service.
pub(super) fn warnings(context: &PushContext, configs: &[Arc<Config>]) -> Vec<Warned> {
    let of = |config: &Arc<Config>| {
        let routes = config.virtual_service()?;
        let found = [absent(context, config, routes), taken(context, config, routes)];
        Some(found.into_iter().flatten().map(|message| warning(config, &message)).collect::<Vec<_>>())
    };
    configs.iter().filter_map(of).flatten().collect()
}

/// The services of other namespaces whose routes it gives to callers of every namespace, in words. As in Istio it is in force: the
/// first VirtualService of a host counts, whosever it is (ISTIO-SECURITY-2026-002).
fn taken(context: &PushContext, config: &Config, routes: &VirtualService) -> Option<String> {
    let for_mesh = routes.gateways.is_empty() || routes.gateways.iter().any(|name| name == MESH);
    let for_all = routes.export_to.is_empty() || routes.export_to.iter().any(|to| to == "*");
    if !for_mesh || !for_all {
        return None;
    }
    let namespace = &config.meta.namespace;
    let of_others = |host: &String| {
        let named = host::resolve_short_name(host, namespace, &context.inputs.mesh.domain);
        let services = context.inputs.registry.services.iter().filter(|service| service.hostname == named);
        let mut owners: BTreeSet<&str> = services.map(|service| &*service.namespace).collect();
        let is_own = owners.remove(&**namespace);
        owners.first().filter(|_| !is_own).map(|owner| format!("{host:?} of namespace {owner}"))
    };
    let all: BTreeSet<String> = routes.hosts.iter().filter_map(of_others).collect();
    let all = all.into_iter().collect::<Vec<_>>().join(", ");
    (!all.is_empty())
        .then(|| format!("it routes callers of every namespace to {all}; exportTo [\".\"] limits it to its own"))
}

/// The absent objects that a VirtualService names, in words.
fn absent(context: &PushContext, config: &Config, routes: &VirtualService) -> Option<String> {
    let namespace = &*config.meta.namespace;
    let mut found = BTreeSet::new();
    for name in routes.gateways.iter().filter(|name| *name != MESH) {
        let (of, bare) = name.split_once('/').unwrap_or((namespace, name));
        let is_it = |gateway: &Arc<Config>| &*gateway.meta.namespace == of && &*gateway.meta.name == bare;
        if !context.inputs.configs.list(Kind::Gateway).iter().any(is_it) {
            found.insert(format!("gateway {name:?}"));
        }
    }
    let services = &context.inputs.registry.services;
    for destination in destinations(routes) {
        let named = host::resolve_short_name(&destination.host, namespace, &context.inputs.mesh.domain);
        if !services.is_empty() && !services.iter().any(|service| host::matches(&service.hostname, &named)) {
            found.insert(format!("host {:?}", destination.host));
        } else if !destination.subset.is_empty() && lacks_subset(context, &named, &destination.subset) {
            found.insert(format!("subset {:?} of host {:?}", destination.subset, destination.host));
        }
    }
    let all: Vec<String> = found.into_iter().collect();
    (!all.is_empty()).then(|| format!("not found: {}", all.join(", ")))
}

fn destinations(routes: &VirtualService) -> impl Iterator<Item = &Destination> {
    let http = routes.http.iter().flat_map(|http| {
        let mirrors = http.mirrors.iter().map(|mirror| mirror.destination.as_ref());
        let routed = http.route.iter().map(|route| route.destination.as_ref());
        routed.chain(mirrors).chain([http.mirror.as_ref()])
    });
    let tcp = routes.tcp.iter().flat_map(|tcp| &tcp.route);
    let tls = routes.tls.iter().flat_map(|tls| &tls.route);
    http.chain(tcp.chain(tls).map(|route| route.destination.as_ref())).flatten()
}

/// Whether there are DestinationRules, of which none has the subset.
fn lacks_subset(context: &PushContext, host: &str, subset: &str) -> bool {
    let rules = context.inputs.configs.list(Kind::DestinationRule);
    let has = |config: &Arc<Config>| {
        let Some(rule) = config.destination_rule() else { return false };
        let of = host::resolve_short_name(&rule.host, &config.meta.namespace, &context.inputs.mesh.domain);
        host::matches(&of, host) && rule.subsets.iter().any(|s| s.name == subset)
    };
    !rules.is_empty() && !rules.iter().any(has)
}

fn warning(config: &Config, message: &str) -> Warned {
    Warned {
        file: config.origin.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default(),
        line: config.origin.line,
        column: 0,
        kind: config.kind().to_string(),
        namespace: config.meta.namespace.to_string(),
        name: config.meta.name.to_string(),
        warning: message.to_string(),
    }
}
