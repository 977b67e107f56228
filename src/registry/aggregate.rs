//! The aggregate of all registries: one list of services, and lookups of a proxy's workload (Istio's aggregate controller).
//! Kubernetes registries come before the ServiceEntry registry, the main cluster first.

use std::{any::Any, collections::HashMap, net::IpAddr, sync::Arc};

use super::{
    auto_allocation,
    external::{External, Instance},
    kube::{Cluster, Directory, stated_namespace},
    service_order::service_order,
};
use crate::model::{
    Features, Hostname, MovedNodes, Node, Service, ServiceTarget, Workload, WorkloadDirectory, difference,
};

/// Cache of services merged from several clusters: a merged service keeps its `Arc` while its content is unchanged.
#[derive(Debug, Default)]
pub struct Derived {
    known: HashMap<(Hostname, Arc<str>, String), Arc<Service>>,
}

/// All services in push order. A Kubernetes Service that several clusters have becomes one service with the addresses and
/// accounts of all of them; its other fields are those of the first cluster.
pub fn services(
    clusters: &[(Arc<str>, &Cluster)],
    external: &External,
    features: &Features,
    derived: &mut Derived,
) -> Vec<Arc<Service>> {
    let mut out: Vec<Arc<Service>> = Vec::new();
    let mut by_host: HashMap<Hostname, usize> = HashMap::new();
    for (id, cluster) in clusters {
        for service in cluster.services() {
            match by_host.get(&service.hostname).and_then(|i| out.get_mut(*i)) {
                Some(first) => *first = Arc::new(merge(first, service, id)),
                None => {
                    by_host.insert(service.hostname.clone(), out.len());
                    out.push(service.clone());
                }
            }
        }
    }
    let mut entries: Vec<Arc<Service>> = external.services().cloned().collect();
    if !features.enable_ip_autoallocate {
        auto_allocation::allocate(&mut entries);
    }
    out.extend(entries);
    derived.reuse(&mut out, clusters.len() > 1 || !features.enable_ip_autoallocate);
    out.sort_by(|a, b| {
        service_order(a, b).then_with(|| (a.registry, &a.object_name).cmp(&(b.registry, &b.object_name)))
    });
    out
}

fn merge(first: &Service, other: &Service, cluster: &Arc<str>) -> Service {
    let mut merged = first.clone();
    if merged.cluster_vips.get(cluster).is_none_or(Vec::is_empty) {
        let vips = other.cluster_vips.get(cluster).cloned().unwrap_or_default();
        merged.cluster_vips.insert(cluster.clone(), vips);
    }
    for account in &other.service_accounts {
        if !merged.service_accounts.contains(account) {
            merged.service_accounts.push(account.clone());
        }
    }
    // The gateways of each network are found by the labels and addresses of their own cluster.
    let (addresses, ports) = (&other.cluster_external_addresses, &other.cluster_external_ports);
    merged.cluster_external_addresses.extend(addresses.iter().map(|(c, a)| (c.clone(), a.clone())));
    merged.cluster_external_ports.extend(ports.iter().map(|(c, p)| (c.clone(), p.clone())));
    merged.cluster_gateway_of.extend(other.cluster_gateway_of.iter().map(|(c, g)| (c.clone(), g.clone())));
    merged.stamped()
}

impl Derived {
    fn reuse(&mut self, services: &mut [Arc<Service>], any: bool) {
        if !any {
            self.known.clear();
            return;
        }
        let mut now = HashMap::with_capacity(services.len());
        for service in services {
            let key = (
                service.hostname.clone(),
                service.namespace.clone(),
                format!("{}/{}", service.object_name, service.default_address),
            );
            if let Some(known) = self.known.get(&key).filter(|k| k.stamp == service.stamp) {
                *service = known.clone();
            }
            now.insert(key, service.clone());
        }
        self.known = now;
    }
}

/// Instances of ServiceEntries by address.
pub type Instances = HashMap<Arc<str>, Arc<[Instance]>>;

/// The workload directory of a snapshot.
#[derive(Debug)]
pub struct WorkloadsByAddress {
    /// Cluster of the ServiceEntries.
    pub main: Arc<str>,
    /// Kubernetes registries, the main cluster first.
    pub clusters: Vec<Arc<Directory>>,
    /// Instances of ServiceEntries by address.
    pub instances: Arc<Instances>,
}

impl WorkloadsByAddress {
    fn instances_of<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Instance> {
        let found = node.ips.iter().filter_map(|ip| self.instances.get(ip)).flat_map(|list| list.iter());
        let own = stated_namespace(node);
        found.filter(move |(s, _)| own.is_empty() || *s.namespace == *own)
    }

    fn clusters_of(&self, node: &Node) -> impl Iterator<Item = &Arc<Directory>> {
        self.clusters.iter().filter(|c| node.cluster_id.is_empty() || node.cluster_id == c.cluster)
    }
}

impl WorkloadDirectory for WorkloadsByAddress {
    fn targets_of(&self, node: &Node) -> Vec<ServiceTarget> {
        let of_entry = |(service, endpoint): &Instance| {
            let port = service
                .port_by_number(endpoint.legacy_cluster_port_key)
                .or_else(|| service.port_by_name(&endpoint.service_port_name))?;
            Some(ServiceTarget { service: service.clone(), port: port.clone(), target_port: endpoint.port })
        };
        let mut out: Vec<_> = self.clusters_of(node).flat_map(|c| c.targets_of(node)).collect();
        out.extend(self.instances_of(node).filter_map(of_entry));
        out
    }

    fn workload_of(&self, node: &Node) -> Option<Workload> {
        if let Some(pod) = self.clusters_of(node).find_map(|c| c.workload_of(node)) {
            return Some(pod);
        }
        if !node.cluster_id.is_empty() && node.cluster_id != self.main {
            return None;
        }
        // All processes of a machine share the loopback address, so it identifies no workload.
        if node.ips.iter().any(|ip| ip.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())) {
            return None;
        }
        let (_, endpoint) = self.instances_of(node).next()?;
        Some(Workload {
            name: endpoint.workload_name.clone(),
            namespace: endpoint.namespace.clone(),
            labels: endpoint.labels.to_labels(),
            locality: endpoint.locality.clone(),
            service_account: account(&endpoint.service_account),
        })
    }

    fn moved_since(&self, before: &dyn WorkloadDirectory) -> MovedNodes {
        let Some(before) = (before as &dyn Any).downcast_ref::<Self>() else { return MovedNodes::all() };
        let ids = |workloads: &Self| workloads.clusters.iter().map(|c| c.cluster.clone()).collect::<Vec<_>>();
        if self.main != before.main || ids(self) != ids(before) {
            return MovedNodes::all();
        }
        let mut moved = MovedNodes::default();
        for (now, before) in self.clusters.iter().zip(&before.clusters) {
            moved.extend(now.moved_since(before));
        }
        if !Arc::ptr_eq(&self.instances, &before.instances) {
            let instances = difference::of_maps(&before.instances, &self.instances, same_instances);
            moved.addresses.extend(instances.into_iter().map(|(address, ..)| address.clone()));
        }
        moved
    }
}

/// Whether two lists of instances at one address are equal.
fn same_instances(a: &Arc<[Instance]>, b: &Arc<[Instance]>) -> bool {
    let same = |(a, b): (&Instance, &Instance)| {
        a.0.stamp == b.0.stamp && a.0.key() == b.0.key() && (Arc::ptr_eq(&a.1, &b.1) || a.1 == b.1)
    };
    Arc::ptr_eq(a, b) || (a.len() == b.len() && a.iter().zip(b.iter()).all(same))
}

/// The service account name in a SPIFFE URI.
fn account(uri: &str) -> Arc<str> {
    uri.rsplit_once("/sa/").map_or("", |(_, name)| name).into()
}
