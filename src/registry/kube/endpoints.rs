//! The endpoints of one Kubernetes Service: from its EndpointSlices and Pods, and from the WorkloadEntries that it selects.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use k8s_openapi::api::discovery::v1::{Endpoint as SliceEndpoint, EndpointConditions, EndpointSlice};

use super::{
    mirror::is_mirrored,
    pod::{Pod, network_of},
    service::{PortTarget, TargetPort},
    space::Space,
};
use crate::{
    model::{Config, Endpoint, HealthStatus, Interner, Labels, Port, Resolution, Service, WorkloadInstance},
    registry::env::{Env, augment_labels, names},
};

/// The inputs of a service's endpoints.
pub struct Sources<'a> {
    /// Effective settings.
    pub env: &'a Env,
    /// Id of the cluster.
    pub cluster: &'a Arc<str>,
    /// Network of the cluster, from the label of its root namespace.
    pub network: Option<&'a str>,
    /// The service of the endpoints.
    pub service: &'a Service,
    /// All namespaces of the cluster, because a slice may refer to a Pod in another one.
    pub spaces: &'a std::collections::HashMap<Arc<str>, Space>,
}

impl Sources<'_> {
    /// The endpoints in the slices, slices by name; duplicates of address and port name are dropped.
    pub fn of_slices(&self, interner: &mut Interner, slices: &BTreeMap<Arc<str>, Arc<Config>>) -> Vec<Arc<Endpoint>> {
        let mut seen = HashSet::new();
        let mut out = Vec::new();
        let has_own = slices.keys().any(|name| !is_mirrored(name));
        let counting = slices.iter().filter(|(name, _)| !has_own || !is_mirrored(name));
        let objects = counting.filter_map(|(_, c)| c.endpoint_slice());
        for slice in objects.filter(|s| s.address_type != "FQDN") {
            for written in slice.endpoints.iter().flatten() {
                for endpoint in self.of_slice_endpoint(interner, slice, written) {
                    let address = endpoint.addresses.first().cloned().unwrap_or_default();
                    if seen.insert((address, endpoint.service_port_name.clone())) {
                        out.push(Arc::new(endpoint));
                    }
                }
            }
        }
        out
    }

    fn of_slice_endpoint(
        &self,
        interner: &mut Interner,
        slice: &EndpointSlice,
        written: &SliceEndpoint,
    ) -> Vec<Endpoint> {
        let health = health(self.env, self.service, written.conditions.as_ref());
        let send_unhealthy = self.env.features.send_unhealthy_endpoints
            || self.env.features.auto_send_unhealthy_endpoints
            || !self.service.traffic_distribution.is_empty();
        let mut out = Vec::new();
        for address in &written.addresses {
            let expected = written.target_ref.as_ref().filter(|r| r.kind.as_deref() == Some("Pod"));
            let pod = match expected {
                Some(target) => {
                    let namespace = target.namespace.as_deref().filter(|n| !n.is_empty());
                    let space = self.spaces.get(namespace.unwrap_or(&self.service.namespace));
                    let name = target.name.as_deref().unwrap_or_default();
                    let Some(pod) = space.and_then(|s| s.pods.get(name)) else { continue };
                    Some(pod)
                }
                None => self.spaces.get(&self.service.namespace).and_then(|s| s.pods.by_address(address)),
            };
            let mut addresses = vec![interner.text(address)];
            if let Some(pod) = pod.filter(|p| expected.is_some() && self.is_dual_stack(p)) {
                if slice.address_type == "IPv6" {
                    continue;
                }
                addresses.clone_from(&pod.ips);
            }
            let template = self.template(interner, pod.map(|p| &**p), address);
            for port in slice.ports.iter().flatten() {
                out.push(Endpoint {
                    addresses: addresses.clone(),
                    port: port.port.and_then(|p| u32::try_from(p).ok()).unwrap_or_default(),
                    service_port_name: interner.text(port.name.as_deref().unwrap_or_default()),
                    health,
                    send_unhealthy,
                    ..template.clone()
                });
            }
        }
        out
    }

    fn is_dual_stack(&self, pod: &Pod) -> bool {
        let vips = self.service.cluster_vips.get(self.cluster).map_or(0, Vec::len);
        self.env.features.istio_dual_stack && pod.ips.len() > 1 && vips > 1
    }

    fn template(&self, interner: &mut Interner, pod: Option<&Pod>, address: &str) -> Endpoint {
        let mut endpoint = match pod {
            Some(pod) => pod.template.clone(),
            None => Endpoint {
                labels: interner.labels(&augment_labels(&Labels::new(), self.cluster, &Default::default(), "", "")),
                cluster: self.cluster.clone(),
                tls_mode: interner.text("disabled"),
                ..Endpoint::default()
            },
        };
        if endpoint.network.is_empty() {
            endpoint.network = network_of(self.env, self.cluster, &*endpoint.labels, self.network, address);
            if !endpoint.network.is_empty() {
                let mut labels = endpoint.labels.to_labels();
                labels.insert(names::NETWORK.to_string(), endpoint.network.to_string());
                endpoint.labels = interner.labels(&labels);
            }
        }
        endpoint
    }
}

/// The health by endpoint conditions: ready, draining (only with sticky sessions), terminating or not ready. Absent conditions
/// are true.
fn health(env: &Env, service: &Service, conditions: Option<&EndpointConditions>) -> HealthStatus {
    let is = |f: fn(&EndpointConditions) -> Option<bool>| conditions.and_then(f).unwrap_or(true);
    let labelled = |key: &str| !key.is_empty() && service.labels.get(key).is_some_and(|v| !v.is_empty());
    let sticky =
        labelled(&env.features.persistent_session_label) || labelled(&env.features.persistent_session_header_label);
    match (is(|c| c.ready), is(|c| c.serving), is(|c| c.terminating)) {
        (true, _, _) => HealthStatus::Healthy,
        (false, true, true) if sticky => HealthStatus::Draining,
        (false, _, true) => HealthStatus::Terminating,
        _ => HealthStatus::UnHealthy,
    }
}

/// The endpoints of the WorkloadEntries that the service selects, by port.
pub fn of_workloads(
    env: &Env,
    service: &Service,
    ports: &[PortTarget],
    workloads: &[&Arc<WorkloadInstance>],
) -> Vec<Arc<Endpoint>> {
    if !env.features.enable_k8s_select_workload_entries || !selects_workloads(service) {
        return Vec::new();
    }
    let pairs = service.ports.iter().flat_map(|port| workloads.iter().map(move |w| (port, w)));
    let endpoint = |(port, w): (&Port, &&Arc<WorkloadInstance>)| {
        let number = workload_port(ports, port, w)?;
        let service_port_name = port.name.clone();
        Some(Arc::new(Endpoint { port: number, service_port_name, ..w.endpoint.clone() }))
    };
    pairs.filter_map(endpoint).collect()
}

/// Whether a service takes WorkloadEntries: it has a selector, and the registry provides its endpoints.
pub fn selects_workloads(service: &Service) -> bool {
    service.resolution == Resolution::ClientSideLB && !service.mesh_external && !service.label_selectors.is_empty()
}

/// The port of a WorkloadEntry for a service port: its port with the target's name (with the service port's name, if the target
/// is a number), else the target number, else the service port. `None` when a named target is missing. An absent target is the
/// port's own number, which is the API server's default.
pub fn workload_port(ports: &[PortTarget], port: &Port, workload: &WorkloadInstance) -> Option<u32> {
    let found = ports.iter().find(|p| p.port.name == port.name || p.port.port == port.port);
    let named = |name: &str| workload.port_map.get(name).copied().filter(|n| *n != 0);
    match found.map(|p| (&p.target, &p.port.name)) {
        Some((Some(TargetPort::Number(number)), name)) if *number > 0 => Some(named(name).unwrap_or(*number)),
        Some((Some(TargetPort::Named(name)), _)) if !name.is_empty() => named(name),
        Some((None, name)) => Some(named(name).unwrap_or(port.port)),
        _ => Some(port.port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Features;

    #[test]
    fn health_of_conditions() {
        let env = Env::new(Arc::default(), Arc::new(Features::default()));
        let sticky = Service {
            labels: Labels::from([("istio.io/persistent-session".to_string(), "cookie".to_string())]),
            ..Service::default()
        };
        let of = |service: &Service, ready, serving, terminating| {
            let conditions = EndpointConditions { ready: Some(ready), serving: Some(serving), terminating };
            health(&env, service, Some(&conditions))
        };
        let plain = Service::default();
        assert_eq!(health(&env, &plain, None), HealthStatus::Healthy);
        assert_eq!(of(&plain, true, false, Some(true)), HealthStatus::Healthy);
        assert_eq!(of(&plain, false, false, Some(false)), HealthStatus::UnHealthy);
        assert_eq!(of(&plain, false, true, Some(true)), HealthStatus::Terminating);
        assert_eq!(of(&plain, false, false, None), HealthStatus::Terminating);
        assert_eq!(of(&sticky, false, true, Some(true)), HealthStatus::Draining);
        assert_eq!(of(&sticky, false, false, Some(true)), HealthStatus::Terminating);
    }

    #[test]
    fn a_named_target_must_be_there() {
        let port = Port { name: "http".into(), port: 80, ..Port::default() };
        let target = |target| vec![PortTarget { port: port.clone(), target, protocol: "TCP".into() }];
        let mut workload = WorkloadInstance::default();
        let number = |t: Option<TargetPort>, w: &WorkloadInstance| workload_port(&target(t), &port, w);
        assert_eq!(number(None, &workload), Some(80));
        assert_eq!(number(Some(TargetPort::Number(8080)), &workload), Some(8080));
        assert_eq!(number(Some(TargetPort::Named("web".into())), &workload), None);
        workload.port_map = BTreeMap::from([("web".to_string(), 1), ("http".to_string(), 2)]);
        assert_eq!(number(Some(TargetPort::Named("web".into())), &workload), Some(1));
        assert_eq!(number(Some(TargetPort::Number(8080)), &workload), Some(2));
        assert_eq!(number(None, &workload), Some(2));
    }
}
