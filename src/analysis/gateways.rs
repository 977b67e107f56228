//! Gateways against their workloads, Services and Secrets.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::util::intstr::IntOrString};

use super::{
    code::Code,
    message::Report,
    words::{first_label, not_found, selector},
    world::World,
};
use crate::{
    model::{Config, Credential, CredentialKind, Kind, Labels, credential, labels, pem},
    proto::networking::Gateway,
};

pub(super) fn analyze(world: &World<'_>, report: &mut Report) {
    for (index, config) in world.list(Kind::Gateway) {
        let Some(gateway) = config.gateway() else { continue };
        let has_workload = world.selected(&gateway.selector, None).next().is_some();
        if !has_workload && world.has_workloads() {
            let text = not_found("selector", &selector(&gateway.selector));
            let path = first_label("spec.selector", &gateway.selector);
            report.add(Code::ReferencedResourceNotFound, index, path, text);
            continue;
        }
        ports(world, report, index, gateway);
        credentials(world, report, (index, config), gateway);
    }
}

fn ports(world: &World<'_>, report: &mut Report, index: usize, gateway: &Gateway) {
    let mut exposed: BTreeSet<u32> = BTreeSet::new();
    let mut has_services = false;
    for workload in world.selected(&gateway.selector, None).filter(|workload| !workload.is_assumed) {
        for (_, config) in world.list(Kind::Service).filter(|(_, c)| &*c.meta.namespace == workload.namespace) {
            let Some(service) = config.service() else { continue };
            has_services = true;
            if labels::matches(&service_selector(service), &*workload.labels) {
                exposed.extend(target_ports(service));
            }
        }
    }
    if !has_services {
        return;
    }
    for (i, server) in gateway.servers.iter().enumerate() {
        let Some(port) = server.port.as_ref().map(|port| port.number).filter(|port| !exposed.contains(port)) else {
            continue;
        };
        let text = format!(
            "The gateway is listening on a target port (port {port}) that is not defined in the Service associated with its \
             workload instances (Pod selector {}). If you need to access the gateway port through the gateway Service, it \
             will not be available.",
            selector(&gateway.selector)
        );
        report.add(Code::GatewayPortNotDefinedOnService, index, format!("spec.servers[{i}].port.number"), text);
    }
}

/// The selector of a Service; an absent one takes every pod, as in Istio's analysis.
fn service_selector(service: &Service) -> Labels {
    service.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default()
}

/// The TCP ports of a Service that lead to a workload's: its own numbers and the target ports.
fn target_ports(service: &Service) -> Vec<u32> {
    let number = |n: i32| u32::try_from(n).ok().filter(|n| *n > 0);
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let tcp = ports.filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"));
    let both = tcp.flat_map(|port| {
        let target = match &port.target_port {
            Some(IntOrString::Int(target)) => number(*target),
            _ => None,
        };
        [number(port.port), target]
    });
    both.flatten().collect()
}

fn credentials(world: &World<'_>, report: &mut Report, (index, config): (usize, &Config), gateway: &Gateway) {
    if !world.has(Kind::Secret) {
        return;
    }
    let workloads = world.selected(&gateway.selector, None).filter(|workload| !workload.is_assumed);
    let namespaces: BTreeSet<&str> = workloads.map(|workload| workload.namespace).collect();
    for (i, server) in gateway.servers.iter().enumerate() {
        let Some(name) = server.tls.as_ref().map(|tls| tls.credential_name.as_str()).filter(|name| !name.is_empty())
        else {
            continue;
        };
        let path = format!("spec.servers[{i}].tls.credentialName");
        let secrets = secrets_of(world, name, &namespaces);
        if secrets.is_empty() {
            report.add(Code::ReferencedResourceNotFound, index, path, not_found("credentialName", name));
        } else if !secrets.iter().any(|secret| fault_of(secret, world.now).is_none()) {
            let secret = secrets.first().map_or("", |secret| &*secret.meta.namespace);
            let text = format!(
                "The credential referenced by the Gateway {} in namespace {secret} is invalid, which can cause the traffic \
                 not to work as expected.",
                config.meta.name
            );
            let why = secrets.iter().find_map(|secret| fault_of(secret, world.now)).unwrap_or_default();
            report.add(Code::InvalidGatewayCredential, index, path, format!("{text} ({why})"));
        }
    }
}

/// The Secrets that a credential name means in these namespaces; in all where none is known.
pub(super) fn secrets_of<'a>(world: &World<'a>, name: &str, namespaces: &BTreeSet<&str>) -> Vec<&'a Config> {
    let resource = credential::resource_name(name);
    let secrets = || world.list(Kind::Secret).map(|(_, config)| &**config);
    if namespaces.is_empty() {
        let Some(wanted) = Credential::parse(&resource, "") else { return Vec::new() };
        let here = |c: &&Config| wanted.namespace.is_empty() || c.meta.namespace == wanted.namespace;
        return secrets().filter(|c| c.meta.name == wanted.name).filter(here).collect();
    }
    let wanted: Vec<Credential> = namespaces.iter().filter_map(|n| Credential::parse(&resource, n)).collect();
    let is_wanted = |c: &&Config| {
        let of_kind = |w: &&Credential| matches!(w.kind, CredentialKind::Secret | CredentialKind::GatewaySecret);
        wanted.iter().filter(of_kind).any(|w| w.name == c.meta.name && w.namespace == c.meta.namespace)
    };
    secrets().filter(is_wanted).collect()
}

/// The fault of a Secret with a certificate and its key; `None` where it is usable now.
fn fault_of(config: &Config, now: i64) -> Option<String> {
    let secret = config.secret()?;
    let mut data: BTreeMap<&str, &[u8]> = BTreeMap::new();
    data.extend(secret.data.iter().flatten().map(|(key, value)| (key.as_str(), value.0.as_slice())));
    data.extend(secret.string_data.iter().flatten().map(|(key, value)| (key.as_str(), value.as_bytes())));
    let forms = [("cert", "key"), ("tls.crt", "tls.key")];
    let found = forms.iter().find_map(|(chain, key)| Some((*data.get(chain)?, *data.get(key)?)));
    let Some((chain, key)) = found else { return Some("it has no tls.crt and tls.key".to_string()) };
    if let Err(error) = pem::check_pair(chain, key) {
        return Some(error.to_string());
    }
    let (first, last) = pem::validity(chain).first().copied()?;
    match (now < first, now > last) {
        (true, _) => Some("the certificate is not valid yet".to_string()),
        (_, true) => Some("the certificate has expired".to_string()),
        _ => None,
    }
}
