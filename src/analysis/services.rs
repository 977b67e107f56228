//! Services and ServiceEntries: ports whose protocol is not declared, TCP ports without addresses.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{code::Code, message::Report, world::World};
use crate::model::{Config, Kind};

/// Namespaces of Kubernetes itself, where Istio injects nothing.
const SYSTEM: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "local-path-storage"];

/// The label of Services that the control plane makes for a Gateway.
const MANAGED: &str = "gateway.istio.io/managed";

pub(super) fn analyze(world: &World<'_>, report: &mut Report) {
    for (index, config) in world.list(Kind::Service) {
        let is_own = world.objects.get(index).is_some_and(|object| object.is_control_plane());
        let is_system = SYSTEM.contains(&&*config.meta.namespace);
        if !is_own && !is_system && !config.meta.labels.contains_key(MANAGED) {
            ports(world, report, index, config);
        }
    }
    addresses(world, report);
}

fn ports(world: &World<'_>, report: &mut Report, index: usize, config: &Config) {
    let Some(spec) = config.service().and_then(|service| service.spec.as_ref()) else { return };
    let is_external = spec.type_.as_deref() == Some("ExternalName");
    let host = world.full_host(&config.meta.name, &config.meta.namespace);
    let known = world.context.services.get(&host, &config.meta.namespace);
    for (i, port) in spec.ports.iter().flatten().enumerate() {
        let name = port.name.as_deref().unwrap_or_default();
        let number = u32::try_from(port.port).unwrap_or_default();
        let same = known.and_then(|k| k.ports.iter().find(|p| p.port == number && *p.name == *name));
        let is_undeclared = same.is_some_and(|port| port.protocol.is_unsupported());
        let is_plain_alias = is_external && name == "tcp";
        if !is_undeclared && !is_plain_alias {
            continue;
        }
        let path = format!("spec.ports[{i}].port");
        if is_external {
            let text = "Port name for ExternalName service is invalid. Proxy may prevent tcp named ports and unmatched traffic \
                        for ports serving TCP protocol from being forwarded correctly";
            report.add(Code::ExternalNameServiceTypeInvalidPortName, index, path, text);
            continue;
        }
        let target = match &port.target_port {
            Some(IntOrString::Int(target)) => target.to_string(),
            Some(IntOrString::String(target)) => target.clone(),
            None => "0".to_string(),
        };
        let text = format!(
            "Port name {name} (port: {}, targetPort: {target}) doesn't follow the naming convention of Istio port.",
            port.port
        );
        report.add(Code::PortNameIsNotUnderNamingConvention, index, path, text);
    }
}

/// Whether the mesh config lets all proxies capture DNS and allocate addresses.
fn allocates(world: &World<'_>) -> bool {
    let Some(proxy) = &world.mesh().config.default_config else { return false };
    let is_on = |name: &str| proxy.proxy_metadata.get(name).is_some_and(|value| value == "true");
    is_on("ISTIO_META_DNS_CAPTURE") && (is_on("ISTIO_META_DNS_AUTO_ALLOCATE") || is_on("PILOT_ENABLE_IP_AUTOALLOCATE"))
}

fn addresses(world: &World<'_>, report: &mut Report) {
    if allocates(world) {
        return;
    }
    for (index, config) in world.list(Kind::ServiceEntry) {
        let allocated = config.status.get("addresses").and_then(|a| a.as_array()).is_some_and(|a| !a.is_empty());
        let Some(entry) = config.service_entry().filter(|entry| entry.addresses.is_empty() && !allocated) else {
            continue;
        };
        for (i, port) in entry.ports.iter().enumerate() {
            if port.protocol.is_empty() || port.protocol.eq_ignore_ascii_case("TCP") {
                let text = "ServiceEntry addresses are required for this protocol.";
                report.add(Code::ServiceEntryAddressesRequired, index, format!("spec.ports[{i}].name"), text);
            }
        }
    }
}
