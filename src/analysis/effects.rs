//! Objects and settings without effect here, and VirtualServices with more effect than their namespace.

use std::collections::BTreeSet;

use super::{code::Code, destinations::MESH, message::Report, world::World};
use crate::{
    model::{Config, Kind},
    proto::networking::VirtualService,
};

pub(super) fn analyze(world: &World<'_>, report: &mut Report) {
    for (index, object) in world.objects.iter().enumerate() {
        let Some(config) = object.config() else { continue };
        if let Some(reason) = config.without_effect() {
            report.add(Code::NoEffect, index, "kind", reason);
        }
        if let Some(service) = config.virtual_service() {
            takes_the_traffic_of_others(world, report, (index, config), service);
        }
    }
    for (index, config) in world.list(Kind::PeerAuthentication) {
        let selector = config.peer_authentication().and_then(|policy| policy.selector.as_ref());
        let selects = selector.is_some_and(|selector| !selector.match_labels.is_empty());
        if selects && *config.meta.namespace == *world.mesh().config.root_namespace {
            let text = "A PeerAuthentication with a selector has no effect in the root namespace: it selects workloads of its \
                        own namespace, and there only the policy without a selector counts.";
            report.add(Code::NoEffect, index, "spec.selector", text);
        }
    }
}

fn takes_the_traffic_of_others(
    world: &World<'_>,
    report: &mut Report,
    (index, config): (usize, &Config),
    service: &VirtualService,
) {
    let for_mesh = service.gateways.is_empty() || service.gateways.iter().any(|name| name == MESH);
    let for_all = service.export_to.is_empty() || service.export_to.iter().any(|to| to == "*");
    if !for_mesh || !for_all {
        return;
    }
    let own = &*config.meta.namespace;
    for (i, name) in service.hosts.iter().enumerate() {
        let services = world.context.services.of_host(&world.full_host(name, own));
        let owners: BTreeSet<&str> = services.iter().map(|service| &*service.namespace).collect();
        let Some(owner) = owners.first().filter(|_| !owners.contains(own)) else { continue };
        let text = format!("The VirtualService routes callers of every namespace to {name:?} of namespace {owner:?}.");
        report.add(Code::RoutesOfOthers, index, format!("spec.hosts[{i}]"), text);
    }
}
