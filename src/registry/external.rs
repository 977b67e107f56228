//! ServiceEntries and the workloads that they select (Istio's serviceentry controller).
//!
//! Changes mark objects as dirty, and [`External::flush`] computes each dirty object once. The services of a ServiceEntry
//! depend on its content, its namespace's annotations and the workloads that it selects. The endpoints of a host are those of
//! all ServiceEntries in one namespace with that host, oldest ServiceEntry first.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use super::{
    env::Env,
    selectors::{LabelledWorkloads, SelectorIndex, WorkloadKey},
    service_entry::{Inherited, is_dns, resolution, services},
    workload_entry::{endpoints_of, inline_endpoints},
};
use crate::model::{Config, Endpoint, EventKind, Hostname, Interner, Labels, Resolution, Service, WorkloadInstance};

/// Namespace and name of a ServiceEntry.
type EntryKey = (Arc<str>, Arc<str>);
/// Host and namespace of a service.
pub type ServiceKey = (Hostname, Arc<str>);

/// An endpoint of a ServiceEntry with its service.
pub type Instance = (Arc<Service>, Arc<Endpoint>);

/// A service of a ServiceEntry with its endpoints.
#[derive(Debug, Clone)]
struct Offer {
    service: Arc<Service>,
    target_ports: Vec<u32>,
    endpoints: Vec<Arc<Endpoint>>,
}

#[derive(Debug, Default)]
struct Entry {
    config: Option<Arc<Config>>,
    offers: Vec<Offer>,
}

/// The endpoints of one host in one namespace, merged over all ServiceEntries.
#[derive(Debug, Default)]
pub struct Merged {
    /// Names of the ServiceEntries with this host, in order.
    owners: Vec<Arc<str>>,
    /// Whether the endpoints were computed before.
    known: bool,
    /// The endpoints, each with its service.
    pub endpoints: Vec<Instance>,
    /// Whether Envoy resolves some of the endpoints by DNS, so that they are part of the cluster.
    pub dns: bool,
}

/// The changes that a flush computed.
#[derive(Debug, Default)]
pub struct Changes {
    /// Services by host and namespace: Add, Update (the service or a target port differs) or Delete.
    pub services: Vec<(ServiceKey, EventKind)>,
    /// Hosts whose endpoints were added, changed or deleted.
    pub hosts: Vec<(ServiceKey, EventKind)>,
    /// Addresses whose instances changed.
    pub addresses: BTreeSet<Arc<str>>,
}

#[derive(Debug, Default)]
struct Namespace {
    inherited: Inherited,
    selectors: SelectorIndex<Arc<str>>,
    workloads: LabelledWorkloads,
}

/// The state of the ServiceEntry registry.
#[derive(Debug, Default)]
pub struct External {
    entries: BTreeMap<EntryKey, Entry>,
    namespaces: HashMap<Arc<str>, Namespace>,
    hosts: HashMap<ServiceKey, Merged>,
    dirty: BTreeSet<EntryKey>,
}

impl External {
    /// Sets or removes (`None`) a ServiceEntry.
    pub fn set_entry(&mut self, namespace: &Arc<str>, name: &Arc<str>, config: Option<Arc<Config>>) {
        let key = (namespace.clone(), name.clone());
        let entry = self.entries.entry(key.clone()).or_default();
        let old = std::mem::replace(&mut entry.config, config.clone());
        let space = self.namespaces.entry(namespace.clone()).or_default();
        if let Some(selector) = old.as_deref().and_then(selector_of) {
            space.selectors.remove(&selector, name);
        }
        if let Some(selector) = config.as_deref().and_then(selector_of) {
            space.selectors.insert(&selector, name.clone());
        }
        self.dirty.insert(key);
    }

    /// Sets or removes (`None`) a workload; returns the previous one.
    pub fn set_workload(
        &mut self,
        namespace: &Arc<str>,
        key: &WorkloadKey,
        instance: Option<Arc<WorkloadInstance>>,
    ) -> Option<Arc<WorkloadInstance>> {
        let space = self.namespaces.entry(namespace.clone()).or_default();
        if space.workloads.get(key) == instance.as_ref() {
            return instance;
        }
        let old = space.workloads.set(key, instance.clone());
        for labels in [&old, &instance].into_iter().flatten().map(|i| &i.endpoint.labels) {
            let selecting = space.selectors.selecting(labels).chain(space.selectors.all_selecting());
            self.dirty.extend(selecting.map(|name| (namespace.clone(), name.clone())));
        }
        old
    }

    /// Sets the labels and annotations of a namespace.
    pub fn set_namespace(&mut self, namespace: &Arc<str>, inherited: Inherited) {
        let space = self.namespaces.entry(namespace.clone()).or_default();
        if space.inherited == inherited {
            return;
        }
        space.inherited = inherited;
        let first = (namespace.clone(), Arc::from(""));
        let of_namespace = self.entries.range(first..).map(|(key, _)| key).take_while(|(ns, _)| ns == namespace);
        self.dirty.extend(of_namespace.cloned());
    }

    /// The merged endpoints of a host.
    pub fn merged(&self, key: &ServiceKey) -> Option<&Merged> {
        self.hosts.get(key)
    }

    /// All services, in no defined order of hosts.
    pub fn services(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.entries.values().flat_map(|e| e.offers.iter().map(|o| &o.service))
    }

    /// Recomputes all dirty ServiceEntries and their hosts.
    pub fn flush(&mut self, env: &Env, interner: &mut Interner) -> Changes {
        let mut changes = Changes::default();
        let mut hosts = BTreeSet::new();
        for key in std::mem::take(&mut self.dirty) {
            let new = self.offers(env, interner, &key);
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let old = std::mem::replace(&mut entry.offers, new);
            compare(&old, &entry.offers, &mut changes, &mut hosts);
            for host in old.iter().chain(&entry.offers).map(|o| o.service.key()) {
                let owned = entry.offers.iter().any(|o| o.service.hostname == host.0);
                let owners = &mut self.hosts.entry(host).or_default().owners;
                owners.retain(|name| *name != key.1);
                if owned {
                    owners.reserve_exact(1);
                    owners.insert(owners.partition_point(|name| *name < key.1), key.1.clone());
                }
            }
            if entry.config.is_none() {
                self.entries.remove(&key);
            }
        }
        for host in hosts {
            self.merge(host, &mut changes);
        }
        self.namespaces.retain(|_, space| {
            space.inherited != Inherited::default() || !space.selectors.is_empty() || !space.workloads.is_empty()
        });
        changes
    }

    fn offers(&self, env: &Env, interner: &mut Interner, key: &EntryKey) -> Vec<Offer> {
        let config = self.entries.get(key).and_then(|e| e.config.clone());
        let Some((config, entry)) = config.as_ref().and_then(|c| Some((c, c.service_entry()?))) else {
            return Vec::new();
        };
        let space = self.namespaces.get(&key.0);
        let target_ports: Vec<u32> = entry.ports.iter().map(|p| p.target_port).collect();
        let resolution = resolution(&entry);
        let selected: Option<Vec<Arc<Endpoint>>> = entry.workload_selector.as_ref().map(|selector| {
            let workloads = space.map(|s| s.workloads.matching(&selector.labels)).unwrap_or_default();
            let usable = workloads.into_iter().filter(|w| !w.dns_service_entry_only || is_dns(resolution));
            usable.flat_map(|w| endpoints_of(interner, w, &entry.ports)).collect()
        });
        let offer = |service: Arc<Service>| Offer {
            endpoints: match &selected {
                Some(selected) => selected.clone(),
                None => inline_endpoints(env, interner, config, &entry, &service.hostname, resolution),
            },
            target_ports: target_ports.clone(),
            service,
        };
        services(env, config, &entry, space.map(|s| &s.inherited)).into_iter().map(offer).collect()
    }

    fn merge(&mut self, host: ServiceKey, changes: &mut Changes) {
        let Some(old) = self.hosts.remove(&host) else { return };
        let entries = old.owners.iter().filter_map(|name| self.entries.get(&(host.1.clone(), name.clone())));
        let mut offers: Vec<&Offer> =
            entries.flat_map(|e| &e.offers).filter(|o| o.service.hostname == host.0).collect();
        let order = |o: &Offer| (o.service.creation_time, o.service.object_name.clone());
        offers.sort_by_key(|o| order(o));
        let new = Merged::of(old.owners.clone(), &offers);
        if old.known && old.same_as(&new) {
            self.hosts.insert(host, new);
            return;
        }
        let addresses = old.endpoints.iter().chain(&new.endpoints).filter_map(|(_, e)| e.addresses.first());
        changes.addresses.extend(addresses.cloned());
        let kind = match (new.owners.is_empty(), old.known) {
            (true, false) => return,
            (true, true) => EventKind::Delete,
            (false, true) => EventKind::Update,
            (false, false) => EventKind::Add,
        };
        if !new.owners.is_empty() {
            self.hosts.insert(host.clone(), new);
        }
        changes.hosts.push((host, kind));
    }
}

impl Merged {
    /// Merges the endpoints of these offers; a `DNS_ROUND_ROBIN` port with an endpoint takes no other.
    fn of(owners: Vec<Arc<str>>, offers: &[&Offer]) -> Self {
        let endpoints = Vec::with_capacity(offers.iter().map(|o| o.endpoints.len()).sum());
        let mut merged = Self { owners, known: true, endpoints, dns: false };
        let mut ports = HashSet::new();
        for offer in offers {
            for endpoint in &offer.endpoints {
                let port = endpoint.legacy_cluster_port_key;
                if offer.service.resolution == Resolution::DnsRoundRobinLB && ports.contains(&port) {
                    continue;
                }
                ports.insert(port);
                merged.dns |= is_dns(offer.service.resolution);
                merged.endpoints.push((offer.service.clone(), endpoint.clone()));
            }
        }
        merged
    }

    fn same_as(&self, other: &Self) -> bool {
        let same = |(a, b): (&Instance, &Instance)| a.0.stamp == b.0.stamp && a.1 == b.1;
        self.owners.is_empty() == other.owners.is_empty()
            && self.dns == other.dns
            && self.endpoints.len() == other.endpoints.len()
            && self.endpoints.iter().zip(&other.endpoints).all(same)
    }
}

fn selector_of(config: &Config) -> Option<Labels> {
    Some(config.service_entry()?.workload_selector?.labels)
}

/// Records the services that differ and the hosts to merge again. Offers are identified by host and address.
fn compare(old: &[Offer], new: &[Offer], changes: &mut Changes, hosts: &mut BTreeSet<ServiceKey>) {
    let (before, now) = (by_address(old), by_address(new));
    for (at @ (key, _), offer) in &now {
        match before.get(at) {
            None => changes.services.push((key.clone(), EventKind::Add)),
            Some(known) => {
                let same = known.service.stamp == offer.service.stamp && known.target_ports == offer.target_ports;
                if same && known.endpoints == offer.endpoints {
                    continue;
                }
                if !same {
                    changes.services.push((key.clone(), EventKind::Update));
                }
            }
        }
        hosts.insert(key.clone());
    }
    for at @ (key, _) in before.keys() {
        if !now.contains_key(at) {
            changes.services.push((key.clone(), EventKind::Delete));
            hosts.insert(key.clone());
        }
    }
}

fn by_address(offers: &[Offer]) -> BTreeMap<(ServiceKey, &str), &Offer> {
    offers.iter().map(|o| ((o.service.key(), o.service.default_address.as_str()), o)).collect()
}
