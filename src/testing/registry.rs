//! An in-memory registry of given services and endpoints, as in Istio's in-memory service discovery.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{
    model::{
        Endpoint, EndpointIndex, EndpointSet, Hostname, Registry, RegistrySnapshot, Service, ServiceTarget, ShardKey,
    },
    registry::service_order,
};

/// A snapshot of these services and endpoints. An endpoint refers to its service by host and namespace, and to the port by
/// name; endpoints of unknown services or ports are dropped. The workload at an endpoint's first address serves that port.
#[must_use]
pub fn snapshot_of(services: Vec<Arc<Service>>, endpoints: Vec<(Hostname, Arc<str>, Endpoint)>) -> RegistrySnapshot {
    let mut services = services;
    services.sort_by(|a, b| service_order(a, b));
    let mut by_service: BTreeMap<(Hostname, Arc<str>), Vec<Arc<Endpoint>>> = BTreeMap::new();
    let mut targets: HashMap<Arc<str>, Vec<ServiceTarget>> = HashMap::new();
    for (host, namespace, endpoint) in endpoints {
        let Some(service) = services.iter().find(|s| s.hostname == host && s.namespace == namespace) else {
            continue;
        };
        let Some(port) = service_port(service, &endpoint) else { continue };
        if let Some(ip) = endpoint.addresses.first() {
            let target = ServiceTarget { service: service.clone(), port: port.clone(), target_port: endpoint.port };
            targets.entry(ip.clone()).or_default().push(target);
        }
        by_service.entry((host, namespace)).or_default().push(Arc::new(endpoint));
    }
    let shard = ShardKey { provider: Registry::Mock, cluster: "".into() };
    let mut index = EndpointIndex::default();
    for (key, list) in by_service {
        index.by_service.insert(key, Arc::new(EndpointSet::of(vec![(shard.clone(), list.into())])));
    }
    RegistrySnapshot {
        services: Arc::new(services),
        endpoints: Arc::new(index),
        targets: Arc::new(targets.into_iter().map(|(ip, list)| (ip, list.into())).collect()),
        ..RegistrySnapshot::default()
    }
}

fn service_port<'a>(service: &'a Service, endpoint: &Endpoint) -> Option<&'a crate::model::Port> {
    service
        .port_by_name(&endpoint.service_port_name)
        .or_else(|| service.port_by_number(endpoint.legacy_cluster_port_key))
}
