//! The name table (NDS): hosts with their addresses, from which the agent of a proxy with `DNS_CAPTURE` answers DNS queries
//! (Istio's `BuildNameTable`).
//!
//! A service with addresses is there by its host. A headless one is there with the addresses of its pods, and each pod that
//! has a host name under its own. Of a ServiceEntry and a Kubernetes Service of one host the Kubernetes Service counts.

use std::{collections::BTreeMap, collections::HashSet, net::IpAddr, sync::Arc};

use super::addresses;
use crate::{
    model::{Endpoint, HealthStatus, Registry, Resolution, Service, service::UNSPECIFIED_IP},
    proto::istio::networking::nds::v1::name_table::NameInfo,
    push::{ProxyView, PushContext},
};

pub use crate::proto::istio::networking::nds::v1::NameTable;

/// The domain of multi-cluster services: their names must not shadow those of the cluster itself.
const CLUSTER_SET_DOMAIN: &str = ".clusterset.local";

/// The table of a view. It reads the outbound half only.
#[must_use]
pub fn name_table(context: &PushContext, view: &ProxyView) -> NameTable {
    let mut table = NameTable::default();
    for service in context.scope(view).egress.iter().flat_map(|e| &e.services) {
        add(context, view, service, &mut table.table);
    }
    table
}

fn add(context: &PushContext, view: &ProxyView, service: &Service, table: &mut BTreeMap<String, NameInfo>) {
    let mut all = addresses::all_addresses(service, view, context.features());
    let headless = all.iter().any(|a| a == UNSPECIFIED_IP);
    if headless {
        all.truncate(all.iter().position(|a| a == UNSPECIFIED_IP).unwrap_or(0));
    }
    // A CIDR is no address that a client could dial.
    let mut ips: Vec<String> = all.into_iter().filter(|a| is_ip(a)).collect();
    if headless && service.resolution == Resolution::Passthrough && !service.ports.is_empty() {
        ips.extend(add_pods(context, view, service, table));
    }
    if ips.is_empty() {
        return;
    }
    let kubernetes = service.registry == Registry::Kubernetes;
    let info = table.entry(service.hostname.to_string()).or_default();
    let fresh = info.ips.is_empty();
    if fresh || (kubernetes && info.registry != registry(Registry::Kubernetes)) {
        info.ips = ips;
        info.registry = registry(service.registry).to_string();
        if kubernetes && !service.hostname.ends_with(CLUSTER_SET_DOMAIN) {
            info.namespace = service.namespace.to_string();
            info.shortname = service.name.to_string();
        }
    } else if info.registry != registry(Registry::Kubernetes) {
        info.ips.extend(ips);
    }
}

/// Adds the pods of a headless service that have names of their own, and gives the addresses for the service's name.
fn add_pods(
    context: &PushContext,
    view: &ProxyView,
    service: &Service,
    table: &mut BTreeMap<String, NameInfo>,
) -> Vec<String> {
    let mut ips = Vec::new();
    let mut local: BTreeMap<String, NameInfo> = BTreeMap::new();
    let mut remote: BTreeMap<String, NameInfo> = BTreeMap::new();
    for endpoint in distinct_pods(context, service) {
        let same_network = same_or_empty(&view.network, &endpoint.network);
        let same_cluster = same_or_empty(&view.cluster_id, &endpoint.cluster);
        let own = endpoint.addresses.iter().map(ToString::to_string);
        if !endpoint.subdomain.is_empty() && same_network {
            let Some((_, domain)) = service.hostname.split_once('.') else { continue };
            let shortname = format!("{}.{}", endpoint.hostname, endpoint.subdomain);
            let pods = if same_cluster { &mut local } else { &mut remote };
            let info = pods.entry(format!("{shortname}.{domain}")).or_insert_with(|| NameInfo {
                registry: registry(service.registry).to_string(),
                namespace: service.namespace.to_string(),
                shortname,
                ..Default::default()
            });
            info.ips.extend(own.clone());
        }
        // Traffic to a headless service is not balanced by the proxy, so endpoints that cannot be reached directly are left out.
        if same_network && (same_cluster || context.features().enable_multicluster_headless) {
            ips.extend(own);
        }
    }
    remote.retain(|host, _| !local.contains_key(host));
    table.extend(local);
    table.extend(remote);
    ips
}

/// The pods of a service, each once, whatever number of ports it serves.
fn distinct_pods<'a>(context: &'a PushContext, service: &'a Service) -> impl Iterator<Item = &'a Arc<Endpoint>> {
    let set = context.endpoints().get(&service.hostname, &service.namespace);
    let mut seen = HashSet::new();
    set.into_iter().flat_map(|s| s.iter()).filter(move |endpoint| {
        let Some(first) = endpoint.addresses.first() else {
            return false;
        };
        let ready = service.publish_not_ready_addresses || endpoint.health == HealthStatus::Healthy;
        ready && endpoint.addresses.iter().all(|a| is_ip(a)) && seen.insert(first.clone())
    })
}

fn is_ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

fn same_or_empty(a: &str, b: &str) -> bool {
    a.is_empty() || b.is_empty() || a == b
}

/// The name of a registry as agents know it.
fn registry(registry: Registry) -> &'static str {
    match registry {
        Registry::Kubernetes => "Kubernetes",
        Registry::External => "External",
        Registry::Mock => "Mock",
        Registry::None => "",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        model::{EndpointIndex, EndpointSet, Locality, Node, Port, Protocol, RegistrySnapshot, ShardKey},
        push::context::PushInputs,
    };

    fn service(host: &str, registry: Registry, address: &str, resolution: Resolution) -> Arc<Service> {
        let service = Service {
            hostname: host.into(),
            name: host.split('.').next().unwrap_or_default().into(),
            namespace: "shop".into(),
            ports: vec![
                Port { name: "a".into(), port: 80, protocol: Protocol::Tcp },
                Port { name: "b".into(), port: 81, protocol: Protocol::Tcp },
            ],
            default_address: address.into(),
            registry,
            resolution,
            ..Service::default()
        };
        Arc::new(service.stamped())
    }

    fn pod(ip: &str, hostname: &str, health: HealthStatus, port: &str) -> Endpoint {
        let subdomain = if hostname.is_empty() { "" } else { "db" };
        Endpoint {
            addresses: vec![ip.into()],
            service_port_name: port.into(),
            hostname: hostname.into(),
            subdomain: subdomain.into(),
            health,
            ..Endpoint::default()
        }
    }

    fn table(services: Vec<Arc<Service>>, pods: Vec<Endpoint>) -> BTreeMap<String, NameInfo> {
        let shard = ShardKey { provider: Registry::Kubernetes, cluster: "".into() };
        let set = EndpointSet::of(vec![(shard, pods.into_iter().map(Arc::new).collect())]);
        let mut endpoints = EndpointIndex::default();
        endpoints.by_service.insert(("db.shop.svc.cluster.local".into(), "shop".into()), Arc::new(set));
        let registry = RegistrySnapshot {
            services: Arc::new(services),
            endpoints: Arc::new(endpoints),
            ..RegistrySnapshot::default()
        };
        let inputs = PushInputs { registry, ..PushInputs::default() };
        let context = PushContext::build(inputs);
        let id = "sidecar~10.0.0.1~a.shop~shop.svc.cluster.local";
        let node = Node::from_parts(id, json!({"DNS_CAPTURE": "true"}), Locality::default()).unwrap();
        name_table(&context, &context.view_of(&node)).table
    }

    #[test]
    fn a_headless_service_is_its_ready_pods_each_once() {
        let headless =
            service("db.shop.svc.cluster.local", Registry::Kubernetes, UNSPECIFIED_IP, Resolution::Passthrough);
        let ready = HealthStatus::Healthy;
        let pods = vec![
            pod("10.0.1.1", "db-0", ready, "a"),
            pod("10.0.1.1", "db-0", ready, "b"),
            pod("10.0.1.2", "", ready, "a"),
            pod("10.0.1.3", "db-2", HealthStatus::UnHealthy, "a"),
        ];
        let table = table(vec![headless], pods);
        assert_eq!(table["db.shop.svc.cluster.local"].ips, ["10.0.1.1", "10.0.1.2"]);
        assert_eq!(table["db-0.db.shop.svc.cluster.local"].ips, ["10.0.1.1"]);
        assert_eq!(table["db-0.db.shop.svc.cluster.local"].shortname, "db-0.db");
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn cidrs_and_services_without_addresses_are_left_out() {
        let of = |host: &str, address: &str| service(host, Registry::External, address, Resolution::ClientSideLB);
        let table =
            table(vec![of("a.test", "10.9.0.0/16"), of("b.test", UNSPECIFIED_IP), of("c.test", "10.9.0.1")], vec![]);
        assert_eq!(table.keys().collect::<Vec<_>>(), ["c.test"]);
        assert_eq!(table["c.test"].registry, "External");
    }
}
