//! Counts of the objects in force that contradict each other or lead nowhere, as istiod's gauges of a push tell them. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use crate::{
    model::{Config, ConfigSnapshot, EndpointIndex, Kind, Resolution, Service, Visibility, host},
    push::PushContext,
    telemetry::Family,
};

/// Endpoints of pods that are not there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Pods {
    /// Services with such an endpoint, by slice.
    hosts: usize,
    /// Such endpoints now.
    pending: usize,
    /// Such endpoints so far.
    total: u64,
    known: HashSet<(Arc<str>, String)>,
}

/// What was counted of the objects in force, until they change.
#[derive(Debug, Clone, Default)]
pub struct Measures(Arc<Mutex<Counts>>);

impl Measures {
    /// The metrics of the objects in force.
    pub(super) fn families(&self, context: &Arc<PushContext>, stored: &ConfigSnapshot) -> Vec<Family> {
        let mut counts = self.0.lock();
        counts.refresh(context, stored);
        counts.families()
    }
}

/// The counts, with the context that they are of.
#[derive(Debug, Clone, Default)]
struct Counts {
    of: Weak<PushContext>,
    virtual_services: usize,
    no_instances: usize,
    dns_without_endpoints: usize,
    duplicate_clusters: usize,
    duplicate_domains: usize,
    duplicate_subsets: usize,
    pods: Pods,
}

impl Counts {
    /// Counts anew when the context is another one.
    fn refresh(&mut self, context: &Arc<PushContext>, stored: &ConfigSnapshot) {
        if Weak::as_ptr(&self.of) != Arc::as_ptr(context) {
            let registry = &context.inputs.registry;
            let domain = &context.mesh().domain;
            let configs = &context.inputs.configs;
            self.of = Arc::downgrade(context);
            (self.no_instances, self.dns_without_endpoints) =
                without_endpoints(&registry.services, &registry.endpoints);
            self.virtual_services = configs.list(Kind::VirtualService).len();
            self.duplicate_clusters = duplicate_clusters(&registry.services);
            self.duplicate_domains = duplicate_domains(configs.list(Kind::VirtualService), domain);
            self.duplicate_subsets = duplicate_subsets(configs.list(Kind::DestinationRule), domain);
            self.pods = std::mem::take(&mut self.pods).after(stored);
        }
    }

    /// The metrics, under istiod's names.
    fn families(&self) -> Vec<Family> {
        let gauge = |name, help, value: usize| Family::gauge(name, help).of(value as f64);
        let pods = &self.pods;
        vec![
            gauge("pilot_virt_services", "Total virtual services known to pilot.", self.virtual_services),
            gauge("pilot_eds_no_instances", "Number of clusters without instances.", self.no_instances),
            gauge("pilot_dns_cluster_without_endpoints", "DNS clusters without endpoints.", self.dns_without_endpoints),
            gauge(
                "pilot_duplicate_envoy_clusters",
                "Clusters of services with the same host and port.",
                self.duplicate_clusters,
            ),
            gauge("pilot_vservice_dup_domain", "Virtual services with dup domains.", self.duplicate_domains),
            gauge(
                "pilot_destrule_subsets",
                "Duplicate subsets across destination rules for same host",
                self.duplicate_subsets,
            ),
            gauge("endpoint_no_pod", "Endpoints without an associated pod.", pods.hosts),
            gauge(
                "pilot_k8s_endpoints_pending_pod",
                "Endpoints that do not currently have any corresponding pods.",
                pods.pending,
            ),
            Family::counter("pilot_k8s_endpoints_with_no_pods", "Endpoints that does not have any corresponding pods.")
                .of(pods.total as f64),
        ]
    }
}

/// Clusters without an endpoint: those whose endpoints the control plane sends, and those of DNS names.
fn without_endpoints(services: &[Arc<Service>], endpoints: &EndpointIndex) -> (usize, usize) {
    let (mut sent, mut by_dns) = (0, 0);
    for service in services {
        let set = endpoints.get(&service.hostname, &service.namespace);
        let of_port = |name: &str| set.is_some_and(|set| set.iter().any(|e| *e.service_port_name == *name));
        let empty = service.ports.iter().filter(|port| !of_port(&port.name)).count();
        match service.resolution {
            Resolution::ClientSideLB => sent += empty,
            Resolution::DnsLB | Resolution::DnsRoundRobinLB => by_dns += empty,
            _ => {}
        }
    }
    (sent, by_dns)
}

/// Hosts and ports that several services of one namespace have.
fn duplicate_clusters(services: &[Arc<Service>]) -> usize {
    let mut seen: BTreeMap<(&str, &str, u32), usize> = BTreeMap::new();
    for service in services {
        for port in service.ports.iter() {
            *seen.entry((&service.hostname, &service.namespace, port.port)).or_default() += 1;
        }
    }
    seen.values().filter(|count| **count > 1).count()
}

/// Hosts that several VirtualServices route for the sidecars of one namespace.
fn duplicate_domains(services: &[Arc<Config>], domain: &str) -> usize {
    let mut by_host: BTreeMap<Arc<str>, Vec<(Readers<'_>, &str)>> = BTreeMap::new();
    for config in services {
        let (Some(service), namespace) = (config.virtual_service(), &*config.meta.namespace) else { continue };
        if !service.gateways.is_empty() && !service.gateways.iter().any(|gateway| gateway == "mesh") {
            continue;
        }
        let readers = Readers::of(&service.export_to, namespace);
        for name in &service.hosts {
            let host = host::resolve_short_name(name, namespace, domain);
            by_host.entry(host).or_default().push((readers.clone(), &*config.meta.name));
        }
    }
    let meet = |all: &Vec<(Readers<'_>, &str)>| {
        all.iter().enumerate().any(|(i, (one, _))| all.iter().skip(i + 1).any(|(other, _)| one.meets(other)))
    };
    by_host.values().filter(|all| meet(all)).count()
}

/// The namespaces that see an object.
#[derive(Debug, Clone)]
enum Readers<'a> {
    All,
    Of(BTreeSet<&'a str>),
}

impl<'a> Readers<'a> {
    fn of(export_to: &'a [String], own: &'a str) -> Self {
        let mut some = BTreeSet::new();
        for to in export_to {
            match Visibility::parse(to) {
                Visibility::Public => return Self::All,
                Visibility::Private => drop(some.insert(own)),
                _ => drop(some.insert(to.as_str())),
            }
        }
        if export_to.is_empty() { Self::All } else { Self::Of(some) }
    }

    fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, Self::All) => true,
            (Self::All, Self::Of(some)) | (Self::Of(some), Self::All) => !some.is_empty(),
            (Self::Of(one), Self::Of(other)) => !one.is_disjoint(other),
        }
    }
}

/// Hosts of which several DestinationRules of a namespace define a subset of one name.
fn duplicate_subsets(rules: &[Arc<Config>], domain: &str) -> usize {
    let mut seen: HashSet<(Arc<str>, &str, &str)> = HashSet::new();
    let mut hosts: BTreeSet<Arc<str>> = BTreeSet::new();
    for config in rules {
        let Some(rule) = config.destination_rule() else { continue };
        let host = host::resolve_short_name(&rule.host, &config.meta.namespace, domain);
        for subset in &rule.subsets {
            if !seen.insert((host.clone(), &config.meta.namespace, &subset.name)) {
                hosts.insert(host.clone());
            }
        }
    }
    hosts.len()
}

impl Pods {
    /// The counts of these objects, after those of before.
    fn after(self, stored: &ConfigSnapshot) -> Self {
        let pods: HashSet<(&str, &str, &str)> = stored
            .list(Kind::Pod)
            .iter()
            .map(|pod| (&*pod.origin.cluster, &*pod.meta.namespace, &*pod.meta.name))
            .collect();
        let (mut known, mut hosts) = (HashSet::new(), BTreeSet::new());
        for config in stored.list(Kind::EndpointSlice) {
            let Some(slice) = config.endpoint_slice() else { continue };
            for endpoint in slice.endpoints.iter().flatten() {
                let Some(target) = endpoint.target_ref.as_ref().filter(|t| t.kind.as_deref() == Some("Pod")) else {
                    continue;
                };
                let namespace = target.namespace.as_deref().filter(|n| !n.is_empty()).unwrap_or(&config.meta.namespace);
                let name = target.name.as_deref().unwrap_or_default();
                if pods.contains(&(&*config.origin.cluster, namespace, name)) {
                    continue;
                }
                hosts.insert((&*config.meta.namespace, config.meta.labels.get("kubernetes.io/service-name")));
                known.extend(endpoint.addresses.iter().map(|address| (config.meta.namespace.clone(), address.clone())));
            }
        }
        let new = known.difference(&self.known).count() as u64;
        Self { hosts: hosts.len(), pending: known.len(), total: self.total + new, known }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{Origin, Port, decode};

    fn object(kind: &str, namespace: &str, name: &str, rest: &Value) -> Arc<Config> {
        let version = match kind {
            "EndpointSlice" => "discovery.k8s.io/v1",
            "Pod" => "v1",
            _ => "networking.istio.io/v1",
        };
        let mut object = rest.clone();
        object["apiVersion"] = version.into();
        object["kind"] = kind.into();
        object["metadata"]["name"] = name.into();
        object["metadata"]["namespace"] = namespace.into();
        Arc::new(decode::from_value(&object, Origin::default()).unwrap())
    }

    fn route(namespace: &str, name: &str, hosts: &[&str], export_to: &[&str], gateways: &[&str]) -> Arc<Config> {
        let spec = json!({"spec": {"hosts": hosts, "exportTo": export_to, "gateways": gateways,
            "http": [{"route": [{"destination": {"host": "a"}}]}]}});
        object("VirtualService", namespace, name, &spec)
    }

    #[test]
    fn a_host_is_routed_twice_where_one_namespace_sees_both() {
        let of = |all: &[Arc<Config>]| duplicate_domains(all, "cluster.local");
        let public = route("a", "1", &["h.example", "short"], &[], &[]);
        assert_eq!(of(std::slice::from_ref(&public)), 0);
        assert_eq!(of(&[public.clone(), route("b", "2", &["h.example", "short"], &[], &[])]), 1);
        assert_eq!(of(&[public.clone(), route("b", "2", &["h.example"], &["."], &[])]), 1);
        assert_eq!(of(&[public, route("b", "2", &["h.example"], &[], &["gateway"])]), 0);
        let own = |namespace: &str| route(namespace, "x", &["h.example"], &["."], &[]);
        assert_eq!(of(&[own("a"), own("b")]), 0);
        assert_eq!(of(&[own("a"), route("b", "2", &["h.example"], &["a"], &["mesh"])]), 1);
    }

    #[test]
    fn a_subset_is_defined_twice_for_one_host_of_a_namespace() {
        let rule = |namespace: &str, name: &str, host: &str, subset: &str| {
            object("DestinationRule", namespace, name, &json!({"spec": {"host": host, "subsets": [{"name": subset}]}}))
        };
        let all = [
            rule("a", "1", "h", "v1"),
            rule("a", "2", "h.a.svc.cluster.local", "v1"),
            rule("a", "3", "h", "v2"),
            rule("b", "1", "h.a.svc.cluster.local", "v1"),
        ];
        assert_eq!(duplicate_subsets(&all, "cluster.local"), 1);
        assert_eq!(duplicate_subsets(&all[1..], "cluster.local"), 0);
    }

    #[test]
    fn services_without_endpoints_and_with_the_same_port_are_counted() {
        let port = |number: u32, name: &str| Port { name: name.into(), port: number, ..Port::default() };
        let service = |host: &str, resolution| {
            Arc::new(Service {
                hostname: host.into(),
                namespace: "a".into(),
                ports: vec![port(80, "http"), port(81, "grpc")],
                resolution,
                ..Service::default()
            })
        };
        let services = [
            service("x", Resolution::ClientSideLB),
            service("x", Resolution::ClientSideLB),
            service("y", Resolution::DnsLB),
        ];
        assert_eq!(without_endpoints(&services, &EndpointIndex::default()), (4, 2));
        assert_eq!(duplicate_clusters(&services), 2);
    }

    #[test]
    fn endpoints_of_absent_pods_are_counted_once_each() {
        let slice = object(
            "EndpointSlice",
            "shop",
            "s",
            &json!({"metadata": {"labels": {"kubernetes.io/service-name": "cart"}}, "addressType": "IPv4", "ports": [{"port": 80}],
                "endpoints": [
                    {"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": "p1"}},
                    {"addresses": ["10.0.0.2"], "targetRef": {"kind": "Pod", "name": "p2"}},
                    {"addresses": ["10.0.0.3"]}]}),
        );
        let pod = |name: &str| object("Pod", "shop", name, &json!({"spec": {"containers": []}}));
        let of = |pods: Pods, all: &[Arc<Config>]| pods.after(&ConfigSnapshot::of(all.iter().cloned()));
        let none = of(Pods::default(), std::slice::from_ref(&slice));
        assert_eq!((none.hosts, none.pending, none.total), (1, 2, 2));
        let one = of(none, &[slice.clone(), pod("p1")]);
        assert_eq!((one.hosts, one.pending, one.total), (1, 1, 2));
        let both = of(one, &[slice.clone(), pod("p1"), pod("p2")]);
        assert_eq!((both.hosts, both.pending, both.total), (0, 0, 2));
        assert_eq!(of(both, &[slice]).total, 4);
    }
}
