//! Tests of the whole registry: the xDS updates of events, and that the state depends on the final objects alone.

mod events;
mod kubernetes;
mod order;

use std::sync::Arc;

use serde_json::{Value, json};

use super::{ServiceEntryStore, XdsUpdate};
use crate::model::{
    Config, ConfigEvent, EventKind, Features, Mesh, Node, Origin, RegistrySnapshot, decode::from_value,
    push_request::PushKind,
};

/// A store that remembers its objects, so that events carry the previous object.
struct Bench {
    store: ServiceEntryStore,
    objects: Vec<Arc<Config>>,
}

impl Bench {
    fn new() -> Self {
        let store = ServiceEntryStore::new(Arc::new(Mesh::default()), Arc::new(Features::default()));
        Self { store, objects: Vec::new() }
    }

    /// Adds or updates an object; returns short descriptions of the xDS updates.
    fn put(&mut self, document: Value) -> Vec<String> {
        let config = config(document);
        let at = self.objects.iter().position(|o| o.key() == config.key());
        let old = at.map(|i| self.objects.remove(i));
        self.objects.push(config.clone());
        let kind = if old.is_some() { EventKind::Update } else { EventKind::Add };
        self.apply(ConfigEvent { old, current: config, kind })
    }

    fn delete(&mut self, document: &Value) -> Vec<String> {
        let config = config(document.clone());
        self.objects.retain(|o| o.key() != config.key());
        self.apply(ConfigEvent { old: Some(config.clone()), current: config, kind: EventKind::Delete })
    }

    fn apply(&mut self, event: ConfigEvent) -> Vec<String> {
        self.store.apply(&event).iter().map(describe).collect()
    }

    fn snapshot(&mut self) -> RegistrySnapshot {
        self.store.snapshot()
    }

    /// `address:port` of all endpoints of a host in namespace `ns`.
    fn endpoints(&mut self, host: &str) -> Vec<String> {
        let snapshot = self.snapshot();
        let set = snapshot.endpoints.get(&host.into(), &"ns".into()).cloned();
        set.iter().flat_map(|s| s.iter()).map(|e| format!("{}:{}", e.addresses[0], e.port)).collect()
    }
}

fn config(document: Value) -> Arc<Config> {
    Arc::new(from_value(&document, Origin::default()).unwrap())
}

fn describe(update: &XdsUpdate) -> String {
    match update {
        XdsUpdate::Service { host, event, .. } => format!("svc {host} {event:?}"),
        XdsUpdate::Endpoints { host, count, push, .. } => format!("eds {host} {count} {push:?}"),
        XdsUpdate::EndpointsCacheOnly { host, count, .. } => format!("cache {host} {count}"),
        XdsUpdate::ProxyUpdate { ip, .. } => format!("proxy {ip}"),
        XdsUpdate::Push(request) => {
            let kind = |k: PushKind| match k {
                PushKind::Endpoints => "endpoints ",
                PushKind::DnsName => "dns ",
                PushKind::Config(_) | PushKind::Object(_) => "",
            };
            let keys: Vec<_> = request.keys.iter().map(|k| format!("{}{}", kind(k.kind), k.name)).collect();
            let reasons: Vec<_> = request.reasons.keys().map(|r| r.as_str()).collect();
            let forced = if request.forced { " forced" } else { "" };
            format!("xds {} ({}{forced})", keys.join(","), reasons.join(","))
        }
    }
}

fn object(kind: &str, name: &str, rest: Value) -> Value {
    let group = match kind {
        "ServiceEntry" | "WorkloadEntry" => "networking.istio.io/v1",
        "EndpointSlice" => "discovery.k8s.io/v1",
        _ => "v1",
    };
    let namespace = if matches!(kind, "Namespace" | "Node") { "" } else { "ns" };
    let mut document = json!({"apiVersion": group, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
    merge(&mut document, rest);
    document
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// A STATIC or DNS ServiceEntry with port 80 and these endpoint addresses.
fn entry(name: &str, hosts: &[&str], resolution: &str, endpoints: &[&str]) -> Value {
    let endpoints: Vec<_> = endpoints.iter().map(|a| json!({"address": a})).collect();
    let ports = json!([{"name": "http", "number": 80, "protocol": "HTTP"}]);
    let spec = json!({"hosts": hosts, "resolution": resolution, "ports": ports, "endpoints": endpoints});
    object("ServiceEntry", name, json!({"spec": spec}))
}

/// A ServiceEntry that selects workloads by this `app` label.
fn selecting(name: &str, host: &str, resolution: &str, app: &str) -> Value {
    let mut document = entry(name, &[host], resolution, &[]);
    document["spec"]["workloadSelector"] = json!({"labels": {"app": app}});
    document
}

fn workload(name: &str, address: &str, app: &str) -> Value {
    object("WorkloadEntry", name, json!({"spec": {"address": address, "labels": {"app": app}}}))
}

fn pod(name: &str, ip: &str, app: &str, ready: bool) -> Value {
    let conditions = json!([{"type": "Ready", "status": if ready { "True" } else { "False" }}]);
    let status = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": conditions});
    let ports = json!([{"name": "web", "containerPort": 8080}]);
    let spec = json!({"serviceAccountName": "sa", "nodeName": "node", "containers": [{"name": "c", "ports": ports}]});
    object("Pod", name, json!({"metadata": {"labels": {"app": app}}, "spec": spec, "status": status}))
}

fn service(name: &str, app: &str, cluster_ip: &str) -> Value {
    let ports = json!([{"name": "http", "port": 80, "targetPort": "web"}]);
    object("Service", name, json!({"spec": {"clusterIP": cluster_ip, "ports": ports, "selector": {"app": app}}}))
}

fn slice(name: &str, service: &str, pods: &[(&str, &str)]) -> Value {
    let target = |pod: &str| json!({"kind": "Pod", "name": pod, "namespace": "ns"});
    let endpoints: Vec<_> = pods.iter().map(|(p, ip)| json!({"addresses": [ip], "targetRef": target(p)})).collect();
    let ports = json!([{"name": "http", "port": 8080}]);
    let labels = json!({"labels": {"kubernetes.io/service-name": service}});
    object(
        "EndpointSlice",
        name,
        json!({"metadata": labels, "addressType": "IPv4", "endpoints": endpoints, "ports": ports}),
    )
}

/// The node of a sidecar of workload `name` in namespace `ns`.
fn node(name: &str, ip: &str) -> Node {
    let id = format!("sidecar~{ip}~{name}.ns~ns.svc.cluster.local");
    Node::from_parts(&id, json!({"NAMESPACE": "ns", "CLUSTER_ID": "Kubernetes"}), Default::default()).unwrap()
}
