//! The state machine of the registry: configs in, [`XdsUpdate`]s and snapshots out.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
};

use super::{
    XdsUpdate,
    aggregate::{self, Derived, Instances},
    decisions,
    env::{Env, names},
    external::{Changes, External, Instance, ServiceKey},
    kube::{Cluster, Directory, Moved, Pod, Unit},
    selectors::WorkloadKey,
    service_entry::Inherited,
    shards::EndpointShards,
    workload_entry,
};
use crate::model::{
    Config, ConfigEvent, ConfigSnapshot, EventKind, Features, Interner, Kind, Mesh, Registry, RegistrySnapshot,
    ShardKey, WorkloadInstance,
};

/// Kinds that the registry reads, in dependency order: a kind comes before kinds that refer to it.
const KINDS: &[Kind] = &[
    Kind::Namespace,
    Kind::Node,
    Kind::Pod,
    Kind::WorkloadEntry,
    Kind::Service,
    Kind::EndpointSlice,
    Kind::Endpoints,
    Kind::ServiceEntry,
];

/// The state of the registry.
#[derive(Debug, Default)]
pub struct ServiceEntryStore {
    env: Env,
    interner: Interner,
    external: External,
    clusters: BTreeMap<Arc<str>, Cluster>,
    shards: EndpointShards,
    instances: Arc<Instances>,
    derived: Derived,
    published: RegistrySnapshot,
    services_stale: bool,
    directory_stale: bool,
    /// Whether settings of the conversions changed, so that the registry has to be built anew.
    outdated: bool,
}

impl ServiceEntryStore {
    /// An empty registry.
    #[must_use]
    pub fn new(mesh: Arc<Mesh>, features: Arc<Features>) -> Self {
        Self { env: Env::new(mesh, features), directory_stale: true, ..Self::default() }
    }

    /// A registry built from these configs; equal to applying them as events in any order.
    #[must_use]
    pub fn of(mesh: Arc<Mesh>, features: Arc<Features>, configs: &ConfigSnapshot) -> Self {
        let mut store = Self::new(mesh, features);
        configs.list(Kind::ConfigMap).iter().for_each(|config| store.note_mesh_of_cluster(config, true));
        let mut updates = Vec::new();
        for config in KINDS.iter().flat_map(|kind| configs.list(*kind)) {
            store.note(config, true, &mut updates);
        }
        store.flush(&mut updates);
        store.outdated = false;
        store
    }

    /// Applies one change and returns the xDS updates for it.
    pub fn apply(&mut self, event: &ConfigEvent) -> Vec<XdsUpdate> {
        self.apply_all(std::slice::from_ref(event))
    }

    /// Applies several changes at once; objects that several of them affect are computed once.
    pub fn apply_all(&mut self, events: &[ConfigEvent]) -> Vec<XdsUpdate> {
        let mut updates = Vec::new();
        for event in events {
            self.note_mesh_of_cluster(&event.current, event.kind != EventKind::Delete);
            self.note(&event.current, event.kind != EventKind::Delete, &mut updates);
        }
        self.flush(&mut updates);
        updates
    }

    /// Whether the registry has to be built anew from all configs.
    #[must_use]
    pub const fn is_outdated(&self) -> bool {
        self.outdated
    }

    /// The mesh settings of another cluster set the trust domain of its workloads.
    fn note_mesh_of_cluster(&mut self, config: &Config, present: bool) {
        let Some(object) = config.config_map().filter(|_| !config.is_of_main_cluster()) else { return };
        let domain = object.data.as_ref().and_then(|data| data.get(names::TRUST_DOMAIN)).filter(|_| present);
        let domain = domain.map(|domain| domain.as_str().into());
        self.outdated |= self.env.set_trust_domain(&config.origin.cluster, domain);
    }

    /// The current snapshot. Parts that did not change since the last call keep their `Arc`.
    #[must_use]
    pub fn snapshot(&mut self) -> RegistrySnapshot {
        if std::mem::take(&mut self.services_stale) {
            let mut derived = std::mem::take(&mut self.derived);
            let clusters = self.clusters_in_order();
            let services = aggregate::services(&clusters, &self.external, &self.env.features, &mut derived);
            self.derived = derived;
            self.published.services = Arc::new(services);
        }
        if std::mem::take(&mut self.directory_stale) {
            let clusters = self.clusters_in_order();
            let clusters = clusters.into_iter().map(|(id, c)| Arc::new(Directory::of(id, c))).collect();
            let main = self.env.mesh.cluster_id.clone();
            let directory = aggregate::WorkloadsByAddress { main, clusters, instances: self.instances.clone() };
            self.published.directory = Some(Arc::new(directory));
        }
        self.published.endpoints = self.shards.snapshot();
        self.published.clone()
    }

    fn clusters_in_order(&self) -> Vec<(Arc<str>, &Cluster)> {
        let main = &self.env.mesh.cluster_id;
        let mut list: Vec<_> = self.clusters.iter().map(|(id, c)| (id.clone(), c)).collect();
        list.sort_by_key(|(id, _)| id != main);
        list
    }

    fn note(&mut self, config: &Arc<Config>, present: bool, updates: &mut Vec<XdsUpdate>) {
        if !KINDS.contains(&config.kind()) {
            return;
        }
        let id = self.env.cluster(&config.origin.cluster);
        let main = id == self.env.mesh.cluster_id;
        let cluster = self.clusters.entry(id.clone()).or_insert_with(|| Cluster::new(id.clone()));
        let (namespace, name) = (&config.meta.namespace, &config.meta.name);
        let current = present.then(|| config.clone());
        let (env, interner) = (&self.env, &mut self.interner);
        match config.kind() {
            Kind::ServiceEntry if main => self.external.set_entry(namespace, name, current),
            Kind::WorkloadEntry => self.note_workload_entry(config, present, updates),
            Kind::Namespace => {
                let moved = cluster.set_namespace(env, interner, name, current.as_deref());
                if main {
                    let inherited = current
                        .as_ref()
                        .map(|c| Inherited { labels: c.meta.labels.clone(), annotations: c.meta.annotations.clone() });
                    self.external.set_namespace(name, inherited.unwrap_or_default());
                }
                self.note_pods(&id, moved, updates);
            }
            Kind::Node => {
                let moved = cluster.set_node(env, interner, name, current);
                self.note_pods(&id, moved, updates);
            }
            Kind::Pod => {
                let moved = cluster.set_pod(env, interner, namespace, name, current);
                self.note_pods(&id, vec![moved], updates);
            }
            Kind::Service => cluster.set_service(namespace, name, current),
            Kind::EndpointSlice => cluster.set_slice(namespace, name, current),
            Kind::Endpoints => cluster.set_endpoints(namespace, name, current),
            _ => {}
        }
        self.directory_stale |= config.kind() != Kind::ServiceEntry;
    }

    /// A WorkloadEntry is a workload for ServiceEntries and, unless its address is a host name, for the Services of its
    /// cluster.
    fn note_workload_entry(&mut self, config: &Arc<Config>, present: bool, updates: &mut Vec<XdsUpdate>) {
        let Some(entry) = config.workload_entry().filter(|_| !config.meta.namespace.is_empty()) else { return };
        let id = self.env.cluster(&config.origin.cluster);
        let key = WorkloadKey { entry: true, name: config.meta.name.clone(), cluster: id.clone() };
        let namespace = &config.meta.namespace;
        let instance = match present {
            true => workload_entry::instance_of(&self.env, &mut self.interner, config, entry),
            false => None,
        };
        let for_services = instance.clone().filter(|i| !i.dns_service_entry_only);
        let old = self.external.set_workload(namespace, &key, instance.clone());
        if let Some(cluster) = self.clusters.get_mut(&id) {
            cluster.set_workload(namespace, &key, for_services);
        }
        let relabelled = |o: &WorkloadInstance, n: &WorkloadInstance| o.endpoint.labels != n.endpoint.labels;
        if let Some(new) = instance.filter(|n| old.as_ref().is_none_or(|o| relabelled(o, n))) {
            updates.extend(proxy_update(&id, &new));
        }
    }

    /// Changed Pods are updated as workloads for ServiceEntries, and their proxies recompute their own services and labels.
    fn note_pods(&mut self, cluster: &Arc<str>, pods: Vec<Moved>, updates: &mut Vec<XdsUpdate>) {
        for (old, new) in pods {
            let Some(pod) = new.as_ref().or(old.as_ref()) else { continue };
            let key = WorkloadKey { entry: false, name: pod.name.clone(), cluster: cluster.clone() };
            let of = |p: &Option<Arc<Pod>>| p.as_ref().and_then(|p| p.instance(&self.env));
            let (before, now) = (of(&old), of(&new));
            if self.env.features.enable_serviceentry_select_pods {
                self.external.set_workload(&pod.namespace, &key, now.clone());
            }
            let same = |o: &WorkloadInstance, n: &WorkloadInstance| {
                o.endpoint.addresses.first() == n.endpoint.addresses.first() && o.endpoint.labels == n.endpoint.labels
            };
            if let Some(now) = now.filter(|n| before.as_ref().is_none_or(|o| !same(o, n))) {
                updates.extend(proxy_update(cluster, &now));
            }
        }
    }

    fn flush(&mut self, updates: &mut Vec<XdsUpdate>) {
        for (id, cluster) in &mut self.clusters {
            let shard = ShardKey { provider: Registry::Kubernetes, cluster: id.clone() };
            for flushed in cluster.flush(&self.env, &mut self.interner) {
                let stamp = |u: &Option<Arc<Unit>>| u.as_ref().map(|u| u.service.stamp);
                self.services_stale |= stamp(&flushed.old) != stamp(&flushed.new);
                decisions::kubernetes(&mut self.shards, &shard, &flushed, updates);
            }
        }
        let changes = self.external.flush(&self.env, &mut self.interner);
        self.services_stale |= !changes.services.is_empty();
        self.note_instances(&changes);
        let shard = ShardKey { provider: Registry::External, cluster: self.env.mesh.cluster_id.clone() };
        let external = &self.external;
        let endpoints = |key: &ServiceKey| match external.merged(key) {
            Some(merged) => (merged.endpoints.iter().map(|(_, e)| e.clone()).collect(), merged.dns),
            None => (Vec::new(), false),
        };
        decisions::external(&mut self.shards, &shard, &changes, endpoints, updates);
        // The proxy of a Pod recomputes the ServiceEntries that it serves only on a `ProxyUpdate`.
        let pods = changes.addresses.iter().filter(|ip| self.clusters.values().any(|c| c.is_pod(ip)));
        let cluster = &self.env.mesh.cluster_id;
        updates.extend(pods.map(|ip| XdsUpdate::ProxyUpdate { cluster: cluster.clone(), ip: ip.clone() }));
    }

    /// Updates the index of ServiceEntry instances by address.
    fn note_instances(&mut self, changes: &Changes) {
        let hosts: HashSet<&ServiceKey> = changes.hosts.iter().map(|(key, _)| key).collect();
        let mut new: HashMap<&Arc<str>, Vec<Instance>> = HashMap::new();
        for (service, endpoint) in hosts.iter().filter_map(|k| self.external.merged(k)).flat_map(|m| &m.endpoints) {
            if let Some(address) = endpoint.addresses.first().and_then(|a| changes.addresses.get(a)) {
                new.entry(address).or_default().push((service.clone(), endpoint.clone()));
            }
        }
        for address in changes.addresses.iter().filter(|a| a.parse::<IpAddr>().is_ok()) {
            let instances = Arc::make_mut(&mut self.instances);
            let others = instances.get(address).into_iter().flat_map(|list| list.iter());
            let mut list: Vec<Instance> = others.filter(|(s, _)| !hosts.contains(&s.key())).cloned().collect();
            list.extend(new.remove(address).unwrap_or_default());
            let order = |(s, e): &Instance| {
                (s.key(), s.object_name.clone(), s.default_address.clone(), e.legacy_cluster_port_key)
            };
            list.sort_by_key(order);
            match list.is_empty() {
                true => instances.remove(address),
                false => instances.insert(address.clone(), list.into()),
            };
            self.directory_stale = true;
        }
    }
}

fn proxy_update(cluster: &Arc<str>, instance: &WorkloadInstance) -> Option<XdsUpdate> {
    let ip = instance.endpoint.addresses.first()?.clone();
    Some(XdsUpdate::ProxyUpdate { cluster: cluster.clone(), ip })
}
