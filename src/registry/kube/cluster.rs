//! The state of one cluster: its objects, indexed by reference, and its services with their endpoints.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Node, Pod as PodObject};

use super::{
    endpoints::{Sources, of_workloads},
    mirror,
    pod::{self, Pod},
    service::{convert, node_selector, port_targets},
    space::{ByAddress, Causes, Flushed, Moved, Name, Space, Unit},
};
use crate::{
    model::{Config, Interner, Kind, Labels, Locality, Service, WorkloadInstance, labels, namespaces::is_discovered},
    registry::{
        env::{Env, names},
        selectors::WorkloadKey,
    },
};

/// Label of an EndpointSlice with the name of its Service.
const SLICE_SERVICE: &str = "kubernetes.io/service-name";
/// Label of an EndpointSlice that belongs to a ServiceImport instead of a Service.
const SLICE_IMPORT: &str = "multicluster.kubernetes.io/service-name";

/// The state of one cluster.
#[derive(Debug, Default)]
pub struct Cluster {
    id: Arc<str>,
    /// Namespaces by name.
    pub spaces: HashMap<Arc<str>, Space>,
    nodes: BTreeMap<Arc<str>, Arc<Config>>,
    pods_of_node: HashMap<Arc<str>, BTreeSet<Name>>,
    node_port_gateways: BTreeSet<Name>,
    network: Option<Arc<str>>,
    /// WorkloadEntries by address.
    pub workloads_by_address: Arc<ByAddress>,
    dirty: BTreeMap<Name, Causes>,
}

impl Cluster {
    /// A cluster without objects.
    pub fn new(id: Arc<str>) -> Self {
        Self { id, ..Self::default() }
    }

    fn space(&mut self, namespace: &Arc<str>) -> &mut Space {
        self.spaces.entry(namespace.clone()).or_default()
    }

    fn touch(&mut self, service: Name, cause: fn(&mut Causes) -> &mut bool) {
        *cause(self.dirty.entry(service).or_default()) = true;
    }

    /// Whether a ready Pod has this address.
    pub fn is_pod(&self, address: &str) -> bool {
        self.spaces.values().any(|s| s.pods.by_address(address).is_some())
    }

    /// All services of the cluster.
    pub fn services(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.spaces.values().flat_map(|s| s.services.units.values().map(|u| &u.service))
    }

    /// Sets or removes (`None`) a Service.
    pub fn set_service(&mut self, namespace: &Arc<str>, name: &Arc<str>, config: Option<Arc<Config>>) {
        let key = (namespace.clone(), name.clone());
        let gateway = config.as_ref().and_then(|c| node_selector(c, c.service()?)).is_some();
        if gateway {
            self.node_port_gateways.insert(key.clone())
        } else {
            self.node_port_gateways.remove(&key)
        };
        put(&mut self.space(namespace).service_objects, name, config);
        self.touch(key, |c| &mut c.service);
    }

    /// Sets or removes (`None`) an EndpointSlice.
    pub fn set_slice(&mut self, namespace: &Arc<str>, name: &Arc<str>, new: Option<Arc<Config>>) {
        let objects = &mut self.space(namespace).slice_objects;
        let old = match &new {
            Some(config) => objects.insert(name.clone(), config.clone()),
            None => objects.remove(name),
        };
        for (config, present) in [(old, false), (new, true)] {
            let Some(config) = config else { continue };
            let Some(service) = slice_service(&config) else { continue };
            let key: Name = (namespace.clone(), service.into());
            let slices = self.space(namespace).slices.entry(key.1.clone()).or_default();
            if present {
                slices.insert(name.clone(), config.clone());
            } else {
                slices.remove(name);
                if slices.is_empty() {
                    self.space(namespace).slices.remove(&key.1);
                }
            }
            self.index_refs(&config, &key, present);
            self.touch(key, |c| &mut c.endpoints);
        }
    }

    /// Sets or removes (`None`) an Endpoints object.
    pub fn set_endpoints(&mut self, namespace: &Arc<str>, name: &Arc<str>, new: Option<Arc<Config>>) {
        let object = new.as_ref().and_then(|c| Some((c, c.endpoints()?)));
        let slices = object.map(|(config, object)| mirror::slices(config, object, SLICE_SERVICE)).unwrap_or_default();
        let known = |c: &Self, n: &Arc<str>| c.spaces.get(namespace).is_some_and(|s| s.slice_objects.contains_key(n));
        let mut index = slices.len();
        for slice in slices {
            self.set_slice(namespace, &slice.meta.name.clone(), Some(slice));
        }
        while known(self, &mirror::slice_name(name, index)) {
            self.set_slice(namespace, &mirror::slice_name(name, index), None);
            index += 1;
        }
    }

    fn index_refs(&mut self, slice: &Config, service: &Name, present: bool) {
        for endpoint in slice.endpoint_slice().iter().flat_map(|s| s.endpoints.iter().flatten()) {
            let target = endpoint.target_ref.as_ref().filter(|r| r.kind.as_deref() == Some("Pod"));
            let namespace: Arc<str> = match target.and_then(|t| t.namespace.as_deref()).filter(|n| !n.is_empty()) {
                Some(other) => other.into(),
                None => service.0.clone(),
            };
            let named: Vec<Arc<str>> = match target {
                Some(target) => vec![target.name.as_deref().unwrap_or_default().into()],
                None => endpoint.addresses.iter().map(|a| a.as_str().into()).collect(),
            };
            let refs = &mut self.space(&namespace).refs;
            for name in named {
                let services = refs.entry(name.clone()).or_default();
                // Another slice of the service may refer to the Pod as well; a superfluous reference only costs one
                // computation.
                if present {
                    services.insert(service.clone());
                } else {
                    services.remove(service);
                    if services.is_empty() {
                        refs.remove(&name);
                    }
                }
            }
        }
        if !present {
            let others: Vec<_> =
                self.space(&service.0).slices.get(&service.1).into_iter().flat_map(|s| s.values()).cloned().collect();
            for other in others {
                self.index_refs(&other, service, true);
            }
        }
    }

    /// Sets or removes (`None`) a Pod; returns it before and after, as the registry sees it.
    pub fn set_pod(
        &mut self,
        env: &Env,
        interner: &mut Interner,
        namespace: &Arc<str>,
        name: &Arc<str>,
        config: Option<Arc<Config>>,
    ) -> Moved {
        let config = config.filter(|c| c.pod().is_some_and(pod::is_visible));
        put(&mut self.space(namespace).pod_objects, name, config.clone());
        self.read_pod(env, interner, namespace, name, config)
    }

    fn read_pod(
        &mut self,
        env: &Env,
        interner: &mut Interner,
        namespace: &Arc<str>,
        name: &Arc<str>,
        config: Option<Arc<Config>>,
    ) -> Moved {
        let seen = is_discovered(&env.mesh.config, self.space(namespace).labels.as_ref());
        let object = config.as_ref().filter(|_| seen).and_then(|c| Some((c, c.pod()?)));
        let new = object.map(|(config, object)| {
            let node = self.locality_of_node(object);
            Arc::new(Pod::of(env, interner, config, object, node, self.network.as_deref()))
        });
        let space = self.space(namespace);
        let old = space.pods.get(name).cloned();
        if old == new {
            return (old, new);
        }
        Arc::make_mut(&mut space.pods).set(name, new.clone());
        let addresses = [&old, &new].into_iter().flatten().filter_map(|p| p.ips.first());
        let refs = addresses.chain([name]).filter_map(|k| space.refs.get(k)).flatten().cloned();
        let refs: Vec<Name> = refs.collect();
        let relabelled = matches!((&old, &new), (Some(o), Some(n)) if o.labels != n.labels);
        for service in refs {
            self.touch(service, if relabelled { |c| &mut c.relabelled } else { |c| &mut c.endpoints });
        }
        let key = (namespace.clone(), name.clone());
        for (pod, present) in [(&old, false), (&new, true)] {
            let Some(node) = pod.as_ref().map(|p| &p.template.node_name).filter(|n| !n.is_empty()) else { continue };
            let pods = self.pods_of_node.entry(node.clone()).or_default();
            if present {
                pods.insert(key.clone())
            } else {
                pods.remove(&key)
            };
        }
        (old, new)
    }

    fn locality_of_node(&self, pod: &PodObject) -> Option<Locality> {
        let name = pod.spec.as_ref()?.node_name.as_deref()?;
        let labels = &self.nodes.get(name)?.meta.labels;
        let of = |keys: [&str; 2]| -> Arc<str> {
            let found = keys.iter().filter_map(|k| labels.get(*k)).find(|v| !v.is_empty());
            found.map_or("", String::as_str).into()
        };
        Some(Locality {
            region: of([names::REGION, "failure-domain.beta.kubernetes.io/region"]),
            zone: of([names::ZONE, "failure-domain.beta.kubernetes.io/zone"]),
            subzone: of([names::SUBZONE, ""]),
        })
    }

    /// Sets or removes (`None`) a Node; returns the Pods that the change affects.
    pub fn set_node(
        &mut self,
        env: &Env,
        interner: &mut Interner,
        name: &Arc<str>,
        config: Option<Arc<Config>>,
    ) -> Vec<Moved> {
        match config {
            Some(config) => self.nodes.insert(name.clone(), config),
            None => self.nodes.remove(name),
        };
        for gateway in self.node_port_gateways.clone() {
            self.touch(gateway, |c| &mut c.service);
        }
        let pods = self.pods_of_node.get(name).cloned().unwrap_or_default();
        self.read_again(env, interner, pods)
    }

    fn read_again(&mut self, env: &Env, interner: &mut Interner, pods: BTreeSet<Name>) -> Vec<Moved> {
        let mut out = Vec::new();
        for (namespace, name) in pods {
            let config = self.spaces.get(&namespace).and_then(|s| s.pod_objects.get(&name)).cloned();
            out.push(self.read_pod(env, interner, &namespace, &name, config));
        }
        out
    }

    /// Sets or removes (`None`) a Namespace; returns the Pods affected by a change of the cluster's network.
    pub fn set_namespace(
        &mut self,
        env: &Env,
        interner: &mut Interner,
        name: &Arc<str>,
        config: Option<&Config>,
    ) -> Vec<Moved> {
        let labels = config.map(|c| c.meta.labels.clone());
        let annotations = config.map(|c| c.meta.annotations.clone()).unwrap_or_default();
        let space = self.space(name);
        let seen = |l: &Option<Labels>| is_discovered(&env.mesh.config, l.as_ref());
        let distribution = |a: &Labels| a.get(names::TRAFFIC_DISTRIBUTION).cloned();
        let toggled = seen(&space.labels) != seen(&labels);
        let inherited = distribution(&space.annotations) != distribution(&annotations);
        space.labels = labels;
        space.annotations = annotations;
        if inherited {
            for service in space.service_objects.keys().cloned().collect::<Vec<_>>() {
                self.touch((name.clone(), service), |c| &mut c.service);
            }
        }
        let mut spaces: Vec<Arc<str>> = if toggled { vec![name.clone()] } else { Vec::new() };
        if **name == *env.mesh.config.root_namespace {
            let network = config.and_then(|c| c.meta.labels.get(names::NETWORK)).filter(|n| !n.is_empty());
            let network: Option<Arc<str>> = network.map(|n| n.as_str().into());
            if network != self.network {
                self.network = network;
                spaces = self.spaces.keys().cloned().collect();
            }
        }
        spaces.iter().flat_map(|name| self.read_space(env, interner, name)).collect()
    }

    /// Converts all objects of a namespace again; returns its Pods.
    fn read_space(&mut self, env: &Env, interner: &mut Interner, namespace: &Arc<str>) -> Vec<Moved> {
        let Some(space) = self.spaces.get(namespace) else { return Vec::new() };
        let pods = space.pod_objects.keys().map(|name| (namespace.clone(), name.clone())).collect();
        for service in space.service_objects.keys().cloned().collect::<Vec<_>>() {
            let causes = self.dirty.entry((namespace.clone(), service)).or_default();
            (causes.service, causes.endpoints) = (true, true);
        }
        self.read_again(env, interner, pods)
    }

    /// Sets or removes (`None`) a WorkloadEntry.
    pub fn set_workload(&mut self, namespace: &Arc<str>, key: &WorkloadKey, instance: Option<Arc<WorkloadInstance>>) {
        let space = self.space(namespace);
        if space.workloads.get(key) == instance.as_ref() {
            return;
        }
        let old = Arc::make_mut(&mut space.workloads).set(key, instance.clone());
        let services: BTreeSet<Arc<str>> = [&old, &instance]
            .into_iter()
            .flatten()
            .flat_map(|i| space.services.selectors.selecting(&i.endpoint.labels))
            .cloned()
            .collect();
        for service in services {
            self.touch((namespace.clone(), service), |c| &mut c.endpoints);
        }
        let name = (namespace.clone(), key.name.clone());
        let by_address = Arc::make_mut(&mut self.workloads_by_address);
        if let Some(address) = old.as_ref().and_then(|o| o.endpoint.addresses.first())
            && let Some(of_address) = by_address.get_mut(address)
        {
            of_address.remove(&name);
            if of_address.is_empty() {
                by_address.remove(address);
            }
        }
        if let Some((instance, address)) =
            instance.and_then(|i| Some((i.clone(), i.endpoint.addresses.first()?.clone())))
        {
            by_address.entry(address).or_default().insert(name, instance);
        }
    }

    /// Recomputes all dirty services.
    pub fn flush(&mut self, env: &Env, interner: &mut Interner) -> Vec<Flushed> {
        let dirty = std::mem::take(&mut self.dirty);
        let names: BTreeSet<Arc<str>> = dirty.keys().map(|(namespace, _)| namespace.clone()).collect();
        let mut out = Vec::with_capacity(dirty.len());
        for ((namespace, name), causes) in dirty {
            out.push(self.compute(env, interner, &namespace, &name, causes));
        }
        for name in names {
            if self.spaces.get(&name).is_some_and(Space::is_empty) {
                self.spaces.remove(&name);
            }
        }
        out
    }

    fn compute(
        &mut self,
        env: &Env,
        interner: &mut Interner,
        namespace: &Arc<str>,
        name: &Arc<str>,
        causes: Causes,
    ) -> Flushed {
        let config = self.spaces.get(namespace).and_then(|s| s.service_objects.get(name)).cloned();
        let object = config.as_ref().and_then(|c| Some((c, c.service()?)));
        let new = object.and_then(|(config, object)| {
            let space = self.spaces.get(namespace)?;
            if !is_discovered(&env.mesh.config, space.labels.as_ref()) {
                return None;
            }
            let known = space.services.units.get(name).filter(|_| !causes.service);
            let service = match known {
                Some(unit) => unit.service.clone(),
                None => convert(env, config, object, Some(&space.annotations), |s| self.node_addresses(s)),
            };
            let ports = port_targets(object);
            let sources = Sources {
                env,
                cluster: &self.id,
                network: self.network.as_deref(),
                service: &service,
                spaces: &self.spaces,
            };
            let listed = space.slices.get(name).map(|s| sources.of_slices(interner, s)).unwrap_or_default();
            let workloads = match service.label_selectors.is_empty() {
                true => Vec::new(),
                false => space.workloads.matching(&service.label_selectors),
            };
            let selected = of_workloads(env, &service, &ports, &workloads);
            Some(Arc::new(Unit { service, ports, listed, selected }))
        });
        let services = Arc::make_mut(&mut self.space(namespace).services);
        let old = match &new {
            Some(unit) => services.units.insert(name.clone(), unit.clone()),
            None => services.units.remove(name),
        };
        let selector = |unit: &Option<Arc<Unit>>| unit.as_ref().map(|u| u.service.clone());
        let (before, now) = (selector(&old), selector(&new));
        if before.as_ref().map(|s| &s.label_selectors) != now.as_ref().map(|s| &s.label_selectors) {
            let selectors = Arc::make_mut(&mut services.selectors);
            before.iter().for_each(|s| selectors.remove(&s.label_selectors, name));
            now.iter().for_each(|s| selectors.insert(&s.label_selectors, name.clone()));
        }
        Flushed { causes, old, new }
    }

    /// External addresses of the Nodes with these labels, by Node name.
    fn node_addresses(&self, selector: &Labels) -> Vec<String> {
        let nodes = self.nodes.values().filter(|n| labels::matches(selector, &n.meta.labels));
        nodes.filter_map(|n| external_ip(n.node()?)).collect()
    }
}

fn external_ip(node: &Node) -> Option<String> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    addresses.iter().find(|a| a.type_ == "ExternalIP" && !a.address.is_empty()).map(|a| a.address.clone())
}

fn slice_service(config: &Config) -> Option<&str> {
    let labels = &config.meta.labels;
    let service = labels.get(SLICE_SERVICE).filter(|s| !s.is_empty() && !labels.contains_key(SLICE_IMPORT))?;
    (config.kind() == Kind::EndpointSlice).then_some(service)
}

fn put<K: Clone + Eq + std::hash::Hash, V>(map: &mut HashMap<K, V>, key: &K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key.clone(), value),
        None => map.remove(key),
    };
}
