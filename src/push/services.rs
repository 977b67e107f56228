//! Services by host and by the namespaces that see them (Istio's `serviceIndex` and `exportTo` rules).
//!
//! Invariants: `all` is in push order (creation time, then name, then namespace); `by_host` holds one service per host and
//! namespace. A service that is exported to no namespace (`~`) is in both, but [`ServiceIndex::visible_to`] never gives it.

mod aliases;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::context::PushInputs;
use crate::model::{Hostname, Registry, Service, Visibility};

/// Services by host and by visibility.
#[derive(Debug, Default)]
pub struct ServiceIndex {
    /// All services in push order (creation time, then name, then namespace), with their aliases resolved.
    pub all: Vec<Arc<Service>>,
    /// By host, then one per namespace in push order. The oldest service of a host and namespace wins, but one from
    /// Kubernetes wins over any other.
    pub by_host: HashMap<Hostname, Vec<Arc<Service>>>,
    /// Services that every namespace sees, in push order.
    public: Vec<Arc<Service>>,
    /// Services exported to some namespaces only, by the namespace that sees them, in push order.
    exported: HashMap<Arc<str>, Vec<Arc<Service>>>,
    /// Visibility of a service without `exportTo`.
    default_export_to: BTreeSet<Visibility>,
}

impl ServiceIndex {
    /// Builds the index.
    #[must_use]
    pub fn build(inputs: &PushInputs) -> Self {
        let mut all = inputs.registry.services.to_vec();
        all.sort_by(|a, b| push_order(a).cmp(&push_order(b)));
        aliases::resolve(&mut all);
        let default_export_to = export_to_or_public(&inputs.mesh.config.default_service_export_to);
        let mut index = Self { default_export_to, ..Self::default() };
        for service in &all {
            index.add_host(service);
            index.add_export(service);
        }
        index.all = all;
        index
    }

    fn add_host(&mut self, service: &Arc<Service>) {
        let same_host = self.by_host.entry(service.hostname.clone()).or_default();
        match same_host.iter_mut().find(|s| s.namespace == service.namespace) {
            None => same_host.push(service.clone()),
            Some(existing) if wins(service, existing) => *existing = service.clone(),
            Some(_) => {}
        }
    }

    fn add_export(&mut self, service: &Arc<Service>) {
        let export_to = self.export_to(service);
        if export_to.contains(&Visibility::Public) {
            self.public.push(service.clone());
            return;
        }
        if export_to.contains(&Visibility::None) {
            return;
        }
        let namespaces: BTreeSet<Arc<str>> = export_to
            .iter()
            .map(|e| match e {
                Visibility::Namespace(name) => name.clone(),
                _ => service.namespace.clone(),
            })
            .collect();
        for namespace in namespaces {
            self.exported.entry(namespace).or_default().push(service.clone());
        }
    }

    fn export_to<'a>(&'a self, service: &'a Service) -> &'a BTreeSet<Visibility> {
        if service.export_to.is_empty() { &self.default_export_to } else { &service.export_to }
    }

    /// Services of any namespace that `namespace` may see (`exportTo` or the mesh's default): first those exported to it by
    /// name or private to it, then the public ones, each in push order (Istio's `servicesExportedToNamespace`).
    #[must_use]
    pub fn visible_to(&self, _inputs: &PushInputs, namespace: &str) -> Vec<Arc<Service>> {
        self.exported.get(namespace).into_iter().flatten().chain(&self.public).cloned().collect()
    }

    /// Whether `namespace` may see the service (Istio's `IsServiceVisible`).
    #[must_use]
    pub fn is_visible(&self, service: &Service, namespace: &str) -> bool {
        self.export_to(service).iter().any(|e| match e {
            Visibility::Public => true,
            Visibility::Private => *service.namespace == *namespace,
            Visibility::None => false,
            Visibility::Namespace(name) => **name == *namespace,
        })
    }

    /// The service of a host in a namespace.
    #[must_use]
    pub fn get(&self, host: &str, namespace: &str) -> Option<&Arc<Service>> {
        self.by_host.get(host)?.iter().find(|s| *s.namespace == *namespace)
    }

    /// The service of a provider, given as `namespace/host`, or as `host` where only one namespace has it (Istio's
    /// `LookupCluster`).
    #[must_use]
    pub fn of_provider(&self, service: &str) -> Option<&Arc<Service>> {
        match service.split_once('/') {
            Some((namespace, host)) => self.get(host, namespace),
            None => match self.of_host(service) {
                [only] => Some(only),
                _ => None,
            },
        }
    }

    /// The services of a host, one per namespace, in push order.
    #[must_use]
    pub fn of_host(&self, host: &str) -> &[Arc<Service>] {
        self.by_host.get(host).map_or(&[], Vec::as_slice)
    }
}

/// Whether `new` takes the place of an older service with the same host and namespace.
fn wins(new: &Service, existing: &Service) -> bool {
    existing.registry != Registry::Kubernetes && new.registry == Registry::Kubernetes
}

/// Sort key of services: creation time, then name, then namespace (Istio's `SortServicesByCreationTime`).
pub(super) fn push_order(service: &Service) -> (crate::model::Timestamp, &str, &str) {
    (service.creation_time, &service.name, &service.namespace)
}

/// A list of `exportTo` entries from mesh settings; an empty one means public.
pub(super) fn export_to_or_public(entries: &[String]) -> BTreeSet<Visibility> {
    if entries.is_empty() {
        return BTreeSet::from([Visibility::Public]);
    }
    entries.iter().map(|e| Visibility::parse(e)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{RegistrySnapshot, Timestamp};

    fn service(host: &str, namespace: &str, export_to: &[&str]) -> Service {
        Service {
            hostname: host.into(),
            name: host.into(),
            namespace: namespace.into(),
            export_to: export_to.iter().map(|e| Visibility::parse(e)).collect(),
            ..Service::default()
        }
    }

    fn index(services: Vec<Service>) -> ServiceIndex {
        let services = Arc::new(services.into_iter().map(|s| Arc::new(s.stamped())).collect());
        let registry = RegistrySnapshot { services, ..RegistrySnapshot::default() };
        ServiceIndex::build(&PushInputs { registry, ..PushInputs::default() })
    }

    fn hosts(index: &ServiceIndex, namespace: &str) -> Vec<String> {
        index.visible_to(&PushInputs::default(), namespace).iter().map(|s| s.hostname.to_string()).collect()
    }

    #[test]
    fn export_to_decides_the_namespaces_that_see_a_service() {
        let index = index(vec![
            service("a.public", "x", &[]),
            service("b.private", "x", &["."]),
            service("c.named", "x", &["y", "x"]),
            service("d.none", "x", &["~"]),
            service("e.star-wins", "x", &["~", "*"]),
        ]);
        assert_eq!(hosts(&index, "x"), ["b.private", "c.named", "a.public", "e.star-wins"]);
        assert_eq!(hosts(&index, "y"), ["c.named", "a.public", "e.star-wins"]);
        assert_eq!(hosts(&index, "z"), ["a.public", "e.star-wins"]);
        let private = index.get("b.private", "x").cloned().unwrap_or_default();
        assert!(index.is_visible(&private, "x") && !index.is_visible(&private, "y"));
    }

    #[test]
    fn one_service_per_host_and_namespace() {
        let old = Service { name: "old".into(), ..service("h", "x", &[]) };
        let new =
            Service { name: "new".into(), creation_time: Timestamp(5), registry: Registry::Kubernetes, ..old.clone() };
        let other = Service { creation_time: Timestamp(9), ..service("h", "y", &[]) };
        let index = index(vec![other, new, old]);
        let names: Vec<_> = index.of_host("h").iter().map(|s| (&*s.name, &*s.namespace)).collect();
        assert_eq!(names, [("new", "x"), ("h", "y")]);
    }
}
