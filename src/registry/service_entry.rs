//! Converts a ServiceEntry to services: one per host and address (Istio's `convertServices`).

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use ipnet::IpNet;

use super::env::{Env, traffic_distribution};
use crate::{
    model::{
        Config, Labels, Port, Protocol, Registry, Resolution, Service, Visibility, namespaces::capped_export_to,
        service::UNSPECIFIED_IP,
    },
    proto::networking::{ServiceEntry, service_entry},
};

/// Label that opts a ServiceEntry out of address allocation.
const AUTO_ALLOCATE_LABEL: &str = "networking.istio.io/enable-autoallocate-ip";
/// Annotation with the connect strategy for DNS addresses.
const CONNECT_STRATEGY: &str = "istio.io/connect-strategy";
const CANONICAL_NAME: &str = "service.istio.io/canonical-name";
const CANONICAL_REVISION: &str = "service.istio.io/canonical-revision";

/// Settings that a ServiceEntry inherits from its namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inherited {
    /// Labels of the namespace.
    pub labels: Labels,
    /// Annotations of the namespace.
    pub annotations: Labels,
}

/// The services of a ServiceEntry: hosts in order, each with its addresses in order. Addresses that are neither an IP nor a
/// CIDR are ignored; a host without a valid address, though it has addresses, has no service.
pub fn services(env: &Env, config: &Config, entry: &ServiceEntry, namespace: Option<&Inherited>) -> Vec<Arc<Service>> {
    let template = template(env, config, entry, namespace);
    let allocated = allocated_addresses(env, config, entry);
    let addresses: Vec<String> = entry.addresses.iter().filter_map(|a| address(a)).collect();
    let mut out = Vec::new();
    for host in &entry.hosts {
        let of_host = |address: &str| {
            let mut service = template.clone();
            service.hostname = host.as_str().into();
            service.name = service.hostname.clone();
            service.default_address = address.to_string();
            service
        };
        if entry.addresses.is_empty() {
            let mut service = of_host(UNSPECIFIED_IP);
            for ip in allocated.get(host.as_str()).into_iter().flatten() {
                match ip {
                    IpAddr::V4(ip) => service.auto_allocated_v4 = Some(ip.to_string()),
                    IpAddr::V6(ip) => service.auto_allocated_v6 = Some(ip.to_string()),
                }
            }
            out.push(Arc::new(service.stamped()));
        } else {
            out.extend(addresses.iter().map(|a| Arc::new(of_host(a).stamped())));
        }
    }
    out
}

/// Whether endpoints with this resolution are host names that Envoy resolves.
pub fn is_dns(resolution: Resolution) -> bool {
    matches!(resolution, Resolution::DnsLB | Resolution::DnsRoundRobinLB)
}

/// The resolution of an entry.
pub fn resolution(entry: &ServiceEntry) -> Resolution {
    match entry.resolution() {
        service_entry::Resolution::None => Resolution::Passthrough,
        service_entry::Resolution::Static => Resolution::ClientSideLB,
        service_entry::Resolution::Dns => Resolution::DnsLB,
        service_entry::Resolution::DnsRoundRobin => Resolution::DnsRoundRobinLB,
        service_entry::Resolution::DynamicDns => Resolution::DynamicDns,
    }
}

fn template(env: &Env, config: &Config, entry: &ServiceEntry, namespace: Option<&Inherited>) -> Service {
    let meta = &config.meta;
    let resolution = resolution(entry);
    let external = entry.location() == service_entry::Location::MeshExternal;
    let mut labels = meta.labels.clone();
    if external && env.features.label_canonical_services_for_mesh_external_service_entries {
        add_canonical_labels(&mut labels, &meta.name);
    }
    let target_ports = entry.ports.iter().filter(|p| resolution == Resolution::Passthrough && p.target_port != 0);
    Service {
        namespace: meta.namespace.clone(),
        object_name: meta.name.clone(),
        ports: entry.ports.iter().map(port).collect(),
        service_accounts: entry.subject_alt_names.clone(),
        creation_time: meta.creation,
        resolution,
        mesh_external: external,
        registry: Registry::External,
        labels,
        label_selectors: entry.workload_selector.as_ref().map(|s| s.labels.clone()).unwrap_or_default(),
        export_to: capped_export_to(
            &env.mesh.config,
            entry.export_to.iter().map(|e| Visibility::parse(e)).collect(),
            &meta.namespace,
            namespace.map(|n| &n.labels),
        ),
        passthrough_target_ports: target_ports.map(|p| (p.number, p.target_port)).collect(),
        traffic_distribution: traffic_distribution(None, &meta.annotations, namespace.map(|n| &n.annotations)),
        race_first_connection: meta
            .annotations
            .get(CONNECT_STRATEGY)
            .is_some_and(|s| s.eq_ignore_ascii_case("RACE_FIRST_TCP_CONNECT")),
        ..Service::default()
    }
}

fn port(port: &crate::proto::networking::ServicePort) -> Port {
    Port { name: port.name.as_str().into(), port: port.number, protocol: Protocol::parse(&port.protocol) }
}

/// Parses an address: an IP or CIDR stays as written, a CIDR of a single address becomes that IP.
fn address(text: &str) -> Option<String> {
    if text.parse::<IpAddr>().is_ok() {
        return Some(text.to_string());
    }
    let cidr: IpNet = text.parse().ok()?;
    Some(if cidr.prefix_len() == cidr.max_prefix_len() { cidr.addr().to_string() } else { text.to_string() })
}

/// Addresses that the allocator wrote into the status, by host. They are ignored for an entry that has addresses, cannot use
/// allocated ones, or opted out.
fn allocated_addresses<'a>(env: &Env, config: &'a Config, entry: &ServiceEntry) -> HashMap<&'a str, Vec<IpAddr>> {
    let opted_out = config.meta.labels.get(AUTO_ALLOCATE_LABEL).is_some_and(|v| v.eq_ignore_ascii_case("false"));
    let usable = env.features.enable_ip_autoallocate
        && resolution(entry) != Resolution::Passthrough
        && entry.addresses.is_empty()
        && !opted_out;
    let mut out: HashMap<&str, Vec<IpAddr>> = HashMap::new();
    for claim in config.status["addresses"].as_array().into_iter().flatten().filter(|_| usable) {
        let ip = claim["value"].as_str().and_then(|v| v.parse().ok());
        if let (Some(host), Some(ip)) = (claim["host"].as_str(), ip) {
            out.entry(host).or_default().push(ip);
        }
    }
    out
}

fn add_canonical_labels(labels: &mut Labels, name: &str) {
    let first = |keys: &[&str]| keys.iter().find_map(|k| labels.get(*k)).cloned();
    let service = first(&[CANONICAL_NAME, "app.kubernetes.io/name", "app"]).unwrap_or_else(|| name.to_string());
    let revision =
        first(&[CANONICAL_REVISION, "app.kubernetes.io/version", "version"]).unwrap_or_else(|| "latest".to_string());
    labels.insert(CANONICAL_NAME.to_string(), service);
    labels.insert(CANONICAL_REVISION.to_string(), revision);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{Features, Mesh, Origin, decode::from_value};

    fn convert(document: Value) -> Vec<Arc<Service>> {
        let config = from_value(&document, Origin::default()).unwrap();
        let env = Env::new(Arc::new(Mesh::default()), Arc::new(Features::default()));
        services(&env, &config, &config.service_entry().unwrap(), None)
    }

    fn entry(spec: Value) -> Value {
        json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
            "metadata": {"name": "e", "namespace": "ns"}, "spec": spec,
            "status": {"addresses": [{"host": "a.example", "value": "240.240.0.1"}, {"host": "a.example", "value": "2001:2::1"}]}})
    }

    #[test]
    fn hosts_times_addresses() {
        let spec = json!({"hosts": ["a.example", "b.example"], "addresses": ["10.0.0.1/32", "bad", "10.1.0.0/16"],
            "ports": [{"name": "x", "number": 80, "protocol": "hTTp"}], "resolution": "STATIC"});
        let got: Vec<_> =
            convert(entry(spec)).iter().map(|s| format!("{} {}", s.hostname, s.default_address)).collect();
        assert_eq!(got, ["a.example 10.0.0.1", "a.example 10.1.0.0/16", "b.example 10.0.0.1", "b.example 10.1.0.0/16"]);
    }

    #[test]
    fn defaults_are_external_and_passthrough() {
        let spec = json!({"hosts": ["*.example"], "ports": [{"name": "x", "number": 80, "targetPort": 8080}]});
        let services = convert(entry(spec));
        let [service] = services.as_slice() else { panic!("{services:?}") };
        assert!(service.mesh_external && service.resolution == Resolution::Passthrough);
        assert_eq!(service.passthrough_target_ports.get(&80), Some(&8080));
        assert_eq!(service.ports[0].protocol, Protocol::Unsupported);
    }

    #[test]
    fn addresses_of_the_status_count_only_without_own_ones() {
        let dns = json!({"hosts": ["a.example", "b.example"], "resolution": "DNS"});
        let services = convert(entry(dns));
        assert_eq!(services[0].auto_allocated_v4.as_deref(), Some("240.240.0.1"));
        assert_eq!(services[0].auto_allocated_v6.as_deref(), Some("2001:2::1"));
        assert_eq!(services[1].auto_allocated_v4, None);
        let own = json!({"hosts": ["a.example"], "resolution": "DNS", "addresses": ["10.0.0.1"]});
        assert_eq!(convert(entry(own))[0].auto_allocated_v4, None);
        let none = json!({"hosts": ["a.example"], "resolution": "NONE"});
        assert_eq!(convert(entry(none))[0].auto_allocated_v4, None);
    }
}
