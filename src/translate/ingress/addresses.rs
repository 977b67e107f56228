//! Addresses of the ingress gateways, for the status of each Ingress.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{Inputs, gateway::selector};
use crate::model::{Kind, labels};

/// The status of every Ingress: IPs first, then hostnames, each sorted.
pub(super) fn status(inputs: &Inputs<'_>) -> Value {
    let mut entries: Vec<(String, String)> = addresses(inputs)
        .into_iter()
        .map(|a| if a.parse::<IpAddr>().is_ok() { (String::new(), a) } else { (a, String::new()) })
        .collect();
    entries.sort();
    let entries: Vec<Value> = entries
        .into_iter()
        .map(|(hostname, ip)| if ip.is_empty() { json!({"hostname": hostname}) } else { json!({"ip": ip}) })
        .collect();
    if entries.is_empty() { json!({"loadBalancer": {}}) } else { json!({"loadBalancer": {"ingress": entries}}) }
}

/// Addresses of the mesh's ingress service; without one, of the Node of the first running gateway Pod.
fn addresses(inputs: &Inputs<'_>) -> Vec<String> {
    let service = inputs.mesh.ingress_service.as_str();
    if service.is_empty() { of_nodes(inputs) } else { of_service(inputs, service).unwrap_or_default() }
}

fn of_service(inputs: &Inputs<'_>, name: &str) -> Option<Vec<String>> {
    let config = inputs.get(Kind::Service, inputs.gateways, name)?;
    let service = config.service()?;
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return Some(spec.external_name.iter().cloned().collect());
    }
    let balancer = service.status.as_ref().and_then(|s| s.load_balancer.as_ref());
    let given = balancer.and_then(|b| b.ingress.as_ref()).into_iter().flatten();
    let given = given.filter_map(|i| i.ip.clone().filter(|ip| !ip.is_empty()).or_else(|| i.hostname.clone()));
    Some(given.chain(spec.external_ips.iter().flatten().cloned()).collect())
}

fn of_nodes(inputs: &Inputs<'_>) -> Vec<String> {
    let selector = selector(inputs.mesh);
    let node = inputs
        .list(Kind::Pod)
        .filter(|c| *c.meta.namespace == *inputs.gateways && labels::matches(&selector, &c.meta.labels))
        .filter_map(|c| c.pod())
        .filter(|p| p.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running"))
        .find_map(|p| inputs.get(Kind::Node, "", p.spec.as_ref()?.node_name.as_deref()?)?.node());
    let addresses = node.and_then(|n| n.status.as_ref()).and_then(|s| s.addresses.as_ref()).into_iter().flatten();
    let mut external: Vec<String> = Vec::new();
    for address in addresses.filter(|a| a.type_ == "ExternalIP" && !a.address.is_empty()) {
        if !external.contains(&address.address) {
            external.push(address.address.clone());
        }
    }
    external
}
