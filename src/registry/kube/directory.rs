//! Lookups of a proxy's workload in one cluster: its Pod or WorkloadEntry, and the Services that select it (Istio's
//! `GetProxyServiceTargets` of the kube controller).

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use super::{
    cluster::Cluster,
    endpoints::{selects_workloads, workload_port},
    pod::Pod,
    service::{PortTarget, TargetPort},
    space::{ByAddress, Pods, Services, Unit},
};
use crate::{
    model::{
        Endpoint, LabelSet, MovedNodes, Node, Port, Protocol, ServiceTarget, Workload, WorkloadInstance, difference,
    },
    registry::env::names,
};

/// An immutable view of one cluster for lookups by proxy.
#[derive(Debug)]
pub struct Directory {
    /// Id of the cluster.
    pub cluster: Arc<str>,
    spaces: HashMap<Arc<str>, (Arc<Services>, Arc<Pods>)>,
    workloads: Arc<ByAddress>,
}

impl Directory {
    /// The view of the cluster's current state.
    pub fn of(id: Arc<str>, cluster: &Cluster) -> Self {
        let spaces = cluster.spaces.iter().map(|(n, s)| (n.clone(), (s.services.clone(), s.pods.clone())));
        Self { cluster: id, spaces: spaces.collect(), workloads: cluster.workloads_by_address.clone() }
    }

    /// The Service ports of the proxy's workload.
    pub fn targets_of(&self, node: &Node) -> Vec<ServiceTarget> {
        let Some(address) = node.ips.first() else { return Vec::new() };
        if let Some(workload) = self.workload_entry(node, address) {
            return self.of_workload_entry(workload);
        }
        if let Some(pod) = self.pod(node) {
            let selecting = self.selecting(&pod.namespace, &pod.labels);
            if !selecting.is_empty() {
                return selecting.iter().flat_map(|u| of_pod(u, pod)).collect();
            }
            return self.of_slices(stated_namespace(node), address);
        }
        self.of_metadata(node).unwrap_or_default()
    }

    /// The Pod of the proxy.
    pub fn workload_of(&self, node: &Node) -> Option<Workload> {
        let pod = self.pod(node)?;
        let mut labels = pod.template.labels.to_labels();
        // The proxy's own metadata, not the Pod, names the Node that it runs on.
        match pod.labels.get(names::HOSTNAME) {
            Some(written) => labels.insert(names::HOSTNAME.to_string(), written.to_string()),
            None => labels.remove(names::HOSTNAME),
        };
        Some(Workload {
            name: pod.name.clone(),
            namespace: pod.namespace.clone(),
            labels,
            locality: pod.template.locality.clone(),
            service_account: pod.account.clone(),
        })
    }

    /// Proxies for which lookups may differ from those of an earlier view of the cluster.
    pub fn moved_since(&self, before: &Self) -> MovedNodes {
        let mut moved = MovedNodes::default();
        let same = |a: &(Arc<Services>, Arc<Pods>), b: &(Arc<Services>, Arc<Pods>)| {
            Arc::ptr_eq(&a.0, &b.0) && Arc::ptr_eq(&a.1, &b.1)
        };
        let nothing = <(Arc<Services>, Arc<Pods>)>::default();
        for (namespace, old, new) in difference::of_maps(&before.spaces, &self.spaces, same) {
            let (old, new) = (old.unwrap_or(&nothing), new.unwrap_or(&nothing));
            if !Arc::ptr_eq(&old.0, &new.0) && services_moved(&old.0, &new.0, &mut moved) {
                moved.namespaces.insert(namespace.clone());
            }
            if !Arc::ptr_eq(&old.1, &new.1) {
                moved.ids.extend(new.1.moved_since(&old.1).map(|name| format!("{name}.{namespace}").into()));
            }
        }
        if !Arc::ptr_eq(&before.workloads, &self.workloads) {
            let workloads = difference::of_maps(&before.workloads, &self.workloads, |a, b| a == b);
            moved.addresses.extend(workloads.into_iter().map(|(address, ..)| address.clone()));
        }
        if !moved.namespaces.is_empty() {
            // The WorkloadEntry of a proxy may be in another namespace than the proxy.
            let of_moved = |(namespace, _): &(Arc<str>, Arc<str>)| moved.namespaces.contains(namespace);
            let entries = self.workloads.iter().filter(|(_, entries)| entries.keys().any(of_moved));
            let addresses: Vec<_> = entries.map(|(address, _)| address.clone()).collect();
            moved.addresses.extend(addresses);
        }
        moved
    }

    /// The Pod with the name in the node id, in the namespace of the node's metadata.
    fn pod(&self, node: &Node) -> Option<&Arc<Pod>> {
        let (name, namespace) = node.id.split_once('.')?;
        if namespace != stated_namespace(node) {
            return None;
        }
        self.spaces.get(namespace)?.1.get(name)
    }

    /// The WorkloadEntry with the address. Of several, the one with the proxy's name, else one in its namespace, else the
    /// first.
    fn workload_entry(&self, node: &Node, address: &str) -> Option<&Arc<WorkloadInstance>> {
        let of_address = self.workloads.get(address)?;
        let named = node.id.split_once('.').filter(|(_, ns)| **ns == *node.namespace);
        let named = named.and_then(|(name, ns)| of_address.get(&(Arc::from(ns), Arc::from(name))));
        let beside = || of_address.iter().find(|((ns, _), _)| *ns == node.namespace).map(|(_, w)| w);
        match of_address.len() {
            1 => of_address.values().next(),
            _ => named.or_else(beside).or_else(|| of_address.values().next()),
        }
    }

    fn selecting(&self, namespace: &str, labels: &LabelSet) -> Vec<&Arc<Unit>> {
        let Some((services, _)) = self.spaces.get(namespace) else { return Vec::new() };
        let mut names: Vec<_> = services.selectors.selecting(labels).collect();
        names.sort();
        names.into_iter().filter_map(|n| services.units.get(n)).collect()
    }

    fn of_workload_entry(&self, workload: &WorkloadInstance) -> Vec<ServiceTarget> {
        let mut out = Vec::new();
        for unit in self.selecting(&workload.namespace, &workload.endpoint.labels) {
            for port in unit.service.ports.iter().filter(|p| p.protocol != Protocol::Udp) {
                let number = selects_workloads(&unit.service).then(|| workload_port(&unit.ports, port, workload));
                out.extend(number.flatten().map(|n| target(unit, port, n)));
            }
        }
        out
    }

    /// Services without selector whose slices list the address.
    fn of_slices(&self, namespace: &str, address: &Arc<str>) -> Vec<ServiceTarget> {
        let Some((services, _)) = self.spaces.get(namespace) else { return Vec::new() };
        let listed = services.units.values().flat_map(|u| u.listed.iter().map(move |e| (u, e)));
        let own = listed.filter(|(_, e)| e.addresses.first() == Some(address));
        own.filter_map(|(u, e)| Some(target(u, u.service.port_by_name(&e.service_port_name)?, e.port))).collect()
    }

    /// For a proxy without a Pod: Services that select the labels in its metadata. `None` when its `POD_PORTS` lack a port that
    /// a Service names.
    fn of_metadata(&self, node: &Node) -> Option<Vec<ServiceTarget>> {
        let declared: Vec<DeclaredPort> = serde_json::from_str(&node.metadata.pod_ports).unwrap_or_default();
        let mut out = Vec::new();
        for unit in self.selecting(&node.namespace, &LabelSet::from(&node.labels)) {
            let mut numbers = Vec::new();
            for port in &unit.ports {
                let number = match &port.target {
                    Some(TargetPort::Named(name)) if declared.is_empty() => name.parse().unwrap_or_default(),
                    Some(TargetPort::Named(name)) => {
                        declared.iter().find(|d| d.name == *name && d.protocol == port.protocol)?.container_port
                    }
                    other => number_of(other.as_ref(), port),
                };
                numbers.push((port, number));
            }
            out.extend(distinct(unit, numbers));
        }
        Some(out)
    }
}

/// Whether the Services of a namespace differ for the workloads that they select. A Service that differs only in its listed
/// endpoints affects the listed addresses alone.
fn services_moved(before: &Services, now: &Services, moved: &mut MovedNodes) -> bool {
    let names: BTreeSet<&Arc<str>> = before.units.keys().chain(now.units.keys()).collect();
    let mut all = false;
    for name in names {
        let (old, new) = (before.units.get(name), now.units.get(name));
        let (Some(a), Some(b)) = (old, new) else {
            all = true;
            continue;
        };
        if Arc::ptr_eq(a, b) {
            continue;
        }
        all |= a.service.stamp != b.service.stamp || a.ports != b.ports;
        let of = |list: &[Arc<Endpoint>]| -> HashSet<Arc<Endpoint>> { list.iter().cloned().collect() };
        let (before, now) = (of(&a.listed), of(&b.listed));
        let changed = before.symmetric_difference(&now).filter_map(|e| e.addresses.first());
        moved.addresses.extend(changed.cloned());
    }
    all
}

/// A port in the metadata `POD_PORTS`.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeclaredPort {
    name: String,
    container_port: u32,
    protocol: String,
}

impl Default for DeclaredPort {
    fn default() -> Self {
        Self { name: String::new(), container_port: 0, protocol: "TCP".to_string() }
    }
}

fn of_pod(unit: &Unit, pod: &Pod) -> Vec<ServiceTarget> {
    let number = |p: &PortTarget| match &p.target {
        Some(TargetPort::Named(name)) => pod.port(name, &p.protocol),
        other => Some(number_of(other.as_ref(), p)),
    };
    distinct(unit, unit.ports.iter().filter_map(|p| Some((p, number(p)?))))
}

/// An absent target port is the service port itself, which is the API server's default.
fn number_of(target: Option<&TargetPort>, port: &PortTarget) -> u32 {
    match target {
        Some(TargetPort::Number(number)) => *number,
        _ => port.port.port,
    }
}

/// One target per target port and protocol: the first service port with that target.
fn distinct<'a>(unit: &Unit, ports: impl IntoIterator<Item = (&'a PortTarget, u32)>) -> Vec<ServiceTarget> {
    let mut seen = HashSet::new();
    let first = ports.into_iter().filter(|(p, number)| seen.insert((*number, p.port.protocol)));
    first.map(|(p, number)| target(unit, &p.port, number)).collect()
}

fn target(unit: &Unit, port: &Port, number: u32) -> ServiceTarget {
    ServiceTarget { service: unit.service.clone(), port: port.clone(), target_port: number }
}

/// The namespace in the proxy's metadata, else the one in its DNS domain.
pub fn stated_namespace(node: &Node) -> &str {
    match node.metadata.other("NAMESPACE") {
        "" => &node.namespace,
        stated => stated,
    }
}
