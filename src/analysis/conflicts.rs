//! Objects that contradict each other: VirtualServices of the same host, Gateways of the same listener, ServiceEntries with
//! different protocols.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    code::Code,
    destinations::MESH,
    message::Report,
    words::{list, selector},
    world::World,
};
use crate::{
    model::{Config, Kind, Labels, host, labels},
    proto::networking::{Gateway, ServerTlsSettings},
};

/// The namespaces that an object is exported to; `*` alone for all.
fn scopes(export_to: &[String], own: &str) -> BTreeSet<String> {
    if export_to.is_empty() || export_to.iter().any(|to| to == "*") {
        return BTreeSet::from(["*".to_string()]);
    }
    export_to.iter().map(|to| if to == "." { own.to_string() } else { to.clone() }).collect()
}

pub(super) fn analyze(world: &World<'_>, report: &mut Report) {
    hosts_of_the_mesh(world, report);
    protocols_of_entries(world, report);
    let gateways: Vec<_> =
        world.list(Kind::Gateway).filter_map(|(i, config)| Some((i, &**config, config.gateway()?))).collect();
    for gateway in &gateways {
        listeners(world, report, gateway, &gateways);
        certificates(report, gateway, &gateways, world.context.features().scope_gateway_to_namespace);
    }
}

fn full_name(config: &Config) -> String {
    format!("{}/{}", config.meta.namespace, config.meta.name)
}

fn hosts_of_the_mesh(world: &World<'_>, report: &mut Report) {
    let mut by_host: BTreeMap<(String, String), Vec<(usize, String)>> = BTreeMap::new();
    for (index, config) in world.list(Kind::VirtualService) {
        let Some(service) = config.virtual_service() else { continue };
        if !service.gateways.is_empty() && !service.gateways.iter().any(|gateway| gateway == MESH) {
            continue;
        }
        let own = &*config.meta.namespace;
        for scope in scopes(&service.export_to, own) {
            for name in &service.hosts {
                let full = world.full_host(name, own).to_string();
                by_host.entry((scope.clone(), full)).or_default().push((index, full_name(config)));
            }
        }
    }
    let mut told = BTreeSet::new();
    for ((scope, name), own) in &by_host {
        let mut all = own.clone();
        if scope != "*" {
            let public = by_host.iter().filter(|((s, h), _)| s == "*" && host::matches(h, name));
            all.extend(public.flat_map(|(_, list)| list.iter().cloned()));
        }
        all.sort_by(|a, b| a.1.cmp(&b.1));
        all.dedup();
        if all.len() < 2 {
            continue;
        }
        let names = all.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(",");
        for (index, _) in all.iter().filter(|(index, _)| told.insert(*index)) {
            let text = format!(
                "The VirtualServices {names} associated with mesh gateway define the same host {scope}/{name} which can lead \
                 to undefined behavior. This can be fixed by merging the conflicting VirtualServices into a single resource."
            );
            report.add(Code::ConflictingMeshGatewayVirtualServiceHosts, *index, "spec.hosts", text);
        }
    }
}

fn protocols_of_entries(world: &World<'_>, report: &mut Report) {
    type Entry = (usize, String, String);
    let mut by_port: BTreeMap<(String, String, u32), Vec<Entry>> = BTreeMap::new();
    for (index, config) in world.list(Kind::ServiceEntry) {
        let Some(entry) = config.service_entry() else { continue };
        for scope in scopes(&entry.export_to, &config.meta.namespace) {
            for (name, port) in entry.hosts.iter().flat_map(|h| entry.ports.iter().map(move |p| (h, p))) {
                let key = (scope.clone(), name.clone(), port.number);
                let protocol = port.protocol.to_uppercase();
                by_port.entry(key).or_default().push((index, full_name(config), protocol));
            }
        }
    }
    let mut told = BTreeSet::new();
    for ((scope, name, port), own) in &by_port {
        let mut all = own.clone();
        if scope != "*" {
            all.extend(by_port.get(&("*".to_string(), name.clone(), *port)).into_iter().flatten().cloned());
        }
        let protocols: BTreeSet<&str> = all.iter().map(|(.., protocol)| protocol.as_str()).collect();
        if protocols.len() < 2 {
            continue;
        }
        let names: BTreeSet<&str> = all.iter().map(|(_, name, _)| name.as_str()).collect();
        let joined = |set: &BTreeSet<&str>| set.iter().copied().collect::<Vec<_>>().join(", ");
        for (index, ..) in all.iter().filter(|(index, ..)| told.insert(*index)) {
            let text = format!(
                "Multiple ServiceEntries ({}) define the same host {name:?} and port {port} with conflicting protocols ({}).",
                joined(&names),
                joined(&protocols)
            );
            report.add(Code::ConflictingServiceEntryProtocol, *index, "spec.ports", text);
        }
    }
}

type One<'a> = (usize, &'a Config, &'a Gateway);

fn listeners(world: &World<'_>, report: &mut Report, (index, _, gateway): &One<'_>, all: &[One<'_>]) {
    let same_workload = |other: &Labels| {
        let common = |w: &super::world::Workload<'_>| labels::matches(other, &*w.labels);
        gateway.selector == *other || world.selected(&gateway.selector, None).any(common)
    };
    for (i, server) in gateway.servers.iter().enumerate() {
        let Some(port) = server.port.as_ref().map(|port| port.number) else { continue };
        let is_taken = |other: &Gateway| {
            let mut servers = other.servers.iter().filter(|s| s.port.as_ref().is_some_and(|p| p.number == port));
            servers.any(|s| s.bind == server.bind && s.hosts.iter().any(|h| server.hosts.contains(h)))
        };
        let mut others: Vec<String> = all
            .iter()
            .filter(|(other, ..)| other != index)
            .filter(|(.., spec)| is_taken(spec) && same_workload(&spec.selector))
            .map(|(_, other, _)| full_name(other))
            .collect();
        if others.is_empty() {
            continue;
        }
        others.sort();
        let text = format!(
            "Conflict with gateways {} (workload selector {}, port {port}, hosts {}).",
            others.join(","),
            selector(&gateway.selector),
            server.hosts.join(",")
        );
        report.add(Code::ConflictingGateways, *index, format!("spec.servers[{i}]"), text);
    }
}

fn certificates(report: &mut Report, (index, config, gateway): &One<'_>, all: &[One<'_>], in_namespace: bool) {
    for (other_index, other, spec) in all {
        let is_far = in_namespace && other.meta.namespace != config.meta.namespace;
        // An empty selector takes every workload.
        if other_index == index || is_far || !labels::matches(&gateway.selector, &spec.selector) {
            continue;
        }
        let own = gateway.servers.iter().enumerate().filter_map(|(i, server)| Some((i, server.tls.as_ref()?)));
        let same =
            |tls: &ServerTlsSettings| spec.servers.iter().filter_map(|s| s.tls.as_ref()).any(|o| is_same(tls, o));
        for (i, _) in own.filter(|(_, tls)| same(tls)) {
            let names = list([full_name(config), full_name(other)]);
            let text = format!(
                "Duplicate certificate in multiple gateways {names} may cause 404s if clients re-use HTTP2 connections."
            );
            report.add(Code::GatewayDuplicateCertificate, *index, format!("spec.servers[{i}].tls"), text);
        }
    }
}

fn is_same(a: &ServerTlsSettings, b: &ServerTlsSettings) -> bool {
    if !a.credential_name.is_empty() || !b.credential_name.is_empty() {
        return a.credential_name == b.credential_name;
    }
    let is_set = !a.server_certificate.is_empty() && !a.private_key.is_empty();
    is_set && a.server_certificate == b.server_certificate && a.private_key == b.private_key
}
