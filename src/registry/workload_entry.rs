//! Converts WorkloadEntries, and endpoints written inside a ServiceEntry, to workload instances, and workload instances to
//! endpoints of a ServiceEntry.

use std::{net::IpAddr, sync::Arc};

use super::{
    env::{Env, augment_labels, is_padded, names, parse_locality},
    service_entry::is_dns,
};
use crate::{
    model::{Config, Endpoint, Interner, Labels, Resolution, WorkloadInstance, labels::whole_locality},
    proto::networking::{ServiceEntry, ServicePort, WorkloadEntry},
};

/// Prefix of an address that is a Unix socket.
pub const UNIX_PREFIX: &str = "unix://";
const HEALTH_CHECKS: &str = "proxy.istio.io/health-checks-enabled";
const AUTO_REGISTRATION_GROUP: &str = "istio.io/autoRegistrationGroup";

/// The identity of an instance.
pub struct InstanceIdentity<'a> {
    /// Name of the WorkloadEntry, or `<ServiceEntry>-<index>`.
    pub name: Arc<str>,
    /// Namespace of the instance.
    pub namespace: Arc<str>,
    /// Name of the workload.
    pub workload: &'a str,
    /// Id of the cluster.
    pub cluster: Arc<str>,
}

/// The instance of a WorkloadEntry object; `None` while it is unhealthy. Labels of the object override those of its spec.
pub fn instance_of(
    env: &Env,
    interner: &mut Interner,
    config: &Config,
    entry: &WorkloadEntry,
) -> Option<Arc<WorkloadInstance>> {
    if env.features.enable_workload_entry_healthchecks && !is_healthy(config) {
        return None;
    }
    let meta = &config.meta;
    let mut labels = entry.labels.clone();
    labels.extend(meta.labels.iter().map(|(k, v)| (k.clone(), v.clone())));
    let workload = meta
        .annotations
        .get(AUTO_REGISTRATION_GROUP)
        .or_else(|| meta.labels.get(names::WORKLOAD_NAME))
        .map_or(&*meta.name, String::as_str);
    let identity = InstanceIdentity {
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        workload,
        cluster: env.cluster(&config.origin.cluster),
    };
    Some(Arc::new(instance(env, interner, entry, &labels, &identity)))
}

/// The instance of a WorkloadEntry message; its ports are still unset.
pub fn instance(
    env: &Env,
    interner: &mut Interner,
    entry: &WorkloadEntry,
    labels: &Labels,
    identity: &InstanceIdentity,
) -> WorkloadInstance {
    let written = match entry.locality.as_str() {
        "" => whole_locality(labels).unwrap_or_default(),
        written => written.to_string(),
    };
    let locality = parse_locality(&written);
    let tls_mode = match labels.get(names::TLS_MODE) {
        Some(mode) => mode.as_str(),
        None if entry.service_account.is_empty() => "disabled",
        None => "istio",
    };
    let service_account = match entry.service_account.as_str() {
        "" => String::new(),
        // As in Istio, instances of other clusters are assumed to be in the main cluster's trust domain.
        account => env.spiffe(&env.mesh.cluster_id, &identity.namespace, account),
    };
    let cluster = &identity.cluster;
    let network = match entry.network.as_str() {
        "" if **cluster != *env.mesh.cluster_id => env.network(cluster, &entry.address).unwrap_or_default(),
        written => written.into(),
    };
    let address = entry.address.as_str();
    WorkloadInstance {
        name: identity.name.clone(),
        namespace: identity.namespace.clone(),
        pod: false,
        endpoint: Endpoint {
            addresses: vec![interner.text(address)],
            network: interner.text(&entry.network),
            labels: interner.labels(&augment_labels(labels, cluster, &locality, "", &network)),
            locality,
            locality_is_padded: is_padded(&written),
            cluster: cluster.clone(),
            lb_weight: entry.weight,
            namespace: identity.namespace.clone(),
            workload_name: interner.text(identity.workload),
            tls_mode: interner.text(tls_mode),
            service_account: interner.text(&service_account),
            ..Endpoint::default()
        },
        port_map: entry.ports.clone(),
        dns_service_entry_only: address.starts_with(UNIX_PREFIX)
            || (!address.is_empty() && address.parse::<IpAddr>().is_err()),
    }
}

/// The endpoints that a ServiceEntry without selector lists: its `endpoints` times its ports, or for DNS without `endpoints`
/// the host itself.
pub fn inline_endpoints(
    env: &Env,
    interner: &mut Interner,
    config: &Config,
    entry: &ServiceEntry,
    host: &Arc<str>,
    resolution: Resolution,
) -> Vec<Arc<Endpoint>> {
    let cluster = env.mesh.cluster_id.clone();
    if entry.endpoints.is_empty() {
        if !is_dns(resolution) {
            return Vec::new();
        }
        let of_port = |port: &ServicePort| Endpoint {
            addresses: vec![host.clone()],
            port: if port.target_port > 0 { port.target_port } else { port.number },
            service_port_name: interner.text(&port.name),
            legacy_cluster_port_key: port.number,
            tls_mode: interner.text("disabled"),
            cluster: cluster.clone(),
            namespace: config.meta.namespace.clone(),
            workload_name: config.meta.name.clone(),
            labels: interner.labels(&Labels::new()),
            ..Endpoint::default()
        };
        return entry.ports.iter().map(of_port).map(Arc::new).collect();
    }
    let mut out = Vec::with_capacity(entry.endpoints.len() * entry.ports.len());
    for (index, written) in entry.endpoints.iter().enumerate() {
        let name: Arc<str> = format!("{}-{index}", config.meta.name).into();
        let identity = InstanceIdentity {
            name: name.clone(),
            namespace: config.meta.namespace.clone(),
            workload: &name,
            cluster: cluster.clone(),
        };
        let instance = instance(env, interner, written, &written.labels, &identity);
        out.extend(endpoints_of(interner, &instance, &entry.ports));
    }
    out
}

/// Converts a workload to endpoints of a ServiceEntry's ports. The endpoint's port is the first that applies: none for a Unix
/// socket, the workload's port with that name, the target port, the port's number.
pub fn endpoints_of(interner: &mut Interner, instance: &WorkloadInstance, ports: &[ServicePort]) -> Vec<Arc<Endpoint>> {
    let socket = match instance.endpoint.addresses.as_slice() {
        [only] => only.strip_prefix(UNIX_PREFIX),
        _ => None,
    };
    let mut out = Vec::with_capacity(ports.len());
    for port in ports {
        let mut endpoint = instance.endpoint.clone();
        endpoint.service_port_name = interner.text(&port.name);
        endpoint.legacy_cluster_port_key = port.number;
        endpoint.port = match (socket, instance.port_map.get(&port.name)) {
            (Some(path), _) => {
                endpoint.addresses = vec![path.into()];
                0
            }
            (None, Some(&named)) if named > 0 => named,
            _ if port.target_port > 0 => port.target_port,
            _ => port.number,
        };
        if endpoint.namespace.is_empty() {
            endpoint.namespace = instance.namespace.clone();
        }
        if endpoint.workload_name.is_empty() {
            endpoint.workload_name = instance.name.clone();
        }
        out.push(Arc::new(endpoint));
    }
    out
}

/// Whether a WorkloadEntry may get traffic: with health checks enabled only while its `Healthy` condition is true.
pub fn is_healthy(config: &Config) -> bool {
    let checked = config.meta.annotations.get(HEALTH_CHECKS);
    if !checked.is_some_and(|v| matches!(v.as_str(), "1" | "t" | "T" | "true" | "TRUE" | "True")) {
        return true;
    }
    let conditions = config.status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|c| c["type"] == "Healthy").is_some_and(|c| c["status"] == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{Features, Mesh, Origin, decode::from_value};

    fn env() -> Env {
        Env::new(Arc::new(Mesh::default()), Arc::new(Features::default()))
    }

    fn workload(annotations: Value, spec: Value, status: Value) -> Option<Arc<WorkloadInstance>> {
        let document = json!({"apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry", "spec": spec, "status": status,
            "metadata": {"name": "w", "namespace": "ns", "labels": {"app": "meta"}, "annotations": annotations}});
        let config = from_value(&document, Origin::default()).unwrap();
        instance_of(&env(), &mut Interner::default(), &config, config.workload_entry().unwrap())
    }

    #[test]
    fn an_entry_under_health_checks_counts_only_while_healthy() {
        let checked = json!({"proxy.istio.io/health-checks-enabled": "true"});
        let spec = json!({"address": "1.1.1.1"});
        let status = |s: &str| json!({"conditions": [{"type": "Healthy", "status": s}]});
        assert!(workload(json!({}), spec.clone(), Value::Null).is_some());
        assert!(workload(checked.clone(), spec.clone(), Value::Null).is_none());
        assert!(workload(checked.clone(), spec.clone(), status("False")).is_none());
        assert!(workload(checked, spec, status("True")).is_some());
    }

    #[test]
    fn labels_of_the_object_win_and_the_account_switches_mutual_tls_on() {
        let spec = json!({"address": "1.1.1.1", "labels": {"app": "spec", "x": "y"}, "serviceAccount": "sa",
            "locality": "r/z"});
        let instance = workload(json!({}), spec, Value::Null).unwrap();
        assert_eq!(instance.endpoint.labels.get("app"), Some("meta"));
        assert_eq!(instance.endpoint.labels.get("x"), Some("y"));
        assert_eq!(instance.endpoint.labels.get("topology.kubernetes.io/zone"), Some("z"));
        assert_eq!(&*instance.endpoint.tls_mode, "istio");
        assert_eq!(&*instance.endpoint.service_account, "spiffe://cluster.local/ns/ns/sa/sa");
        assert!(!instance.dns_service_entry_only);
    }

    fn inline(spec: Value) -> Vec<String> {
        let document = json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "spec": spec,
            "metadata": {"name": "e", "namespace": "ns"}});
        let config = from_value(&document, Origin::default()).unwrap();
        let entry = config.service_entry().unwrap();
        let resolution = super::super::service_entry::resolution(&entry);
        let list = inline_endpoints(&env(), &mut Interner::default(), &config, &entry, &"h.example".into(), resolution);
        list.iter()
            .map(|e| format!("{}:{} {} {}", e.addresses[0], e.port, e.service_port_name, e.workload_name))
            .collect()
    }

    #[test]
    fn the_endpoint_port_is_the_first_that_applies() {
        let ports = json!([{"name": "a", "number": 80, "targetPort": 8080}, {"name": "b", "number": 81}]);
        let endpoints = json!([{"address": "1.1.1.1", "ports": {"a": 9000}}, {"address": "unix:///s"}]);
        let got = inline(json!({"hosts": ["h"], "resolution": "STATIC", "ports": ports, "endpoints": endpoints}));
        assert_eq!(got, ["1.1.1.1:9000 a e-0", "1.1.1.1:81 b e-0", "/s:0 a e-1", "/s:0 b e-1"]);
        let dns = inline(json!({"hosts": ["h"], "resolution": "DNS", "ports": ports}));
        assert_eq!(dns, ["h.example:8080 a e", "h.example:81 b e"]);
        assert!(inline(json!({"hosts": ["h"], "resolution": "STATIC", "ports": ports})).is_empty());
    }
}
