//! The objects that a cluster makes of manifests: Pods of Deployments, EndpointSlices and cluster addresses of Services, and a
//! Service with a pod for every Gateway, as Istio deploys it.

use std::{collections::BTreeMap, net::TcpListener};

use serde_json::{Map, Value, json};

use super::{list, text};
use crate::process::free_port;

/// Gives out addresses and ports; the same name gets the same one for as long as this lives.
pub struct Plan {
    prefix: String,
    on_loopback: bool,
    addresses: BTreeMap<String, String>,
    ports: BTreeMap<(String, u64), u16>,
}

impl Plan {
    /// For a cluster without connections: any addresses, and ports as they are written.
    pub fn on_paper() -> Self {
        Self::new("10.1".to_string(), false)
    }

    /// For a cluster on this machine: loopback addresses that no other process uses, and ports of gateways that are free.
    pub fn on_loopback() -> Self {
        let start = std::process::id() % 200;
        let mut octets = (0..200).map(|i| format!("127.{}", 20 + (start + i) % 200));
        // A process that finds the first pod's port free has the block for itself.
        let free = |prefix: &String| TcpListener::bind(format!("{prefix}.0.1:3000")).is_ok();
        Self::new(octets.find(free).expect("a free block of loopback addresses"), true)
    }

    fn new(prefix: String, on_loopback: bool) -> Self {
        Self { prefix, on_loopback, addresses: BTreeMap::new(), ports: BTreeMap::new() }
    }

    /// The address of a pod or a Service.
    pub fn address(&mut self, name: &str) -> String {
        let next = self.addresses.len() + 1;
        let new = || format!("{}.{}.{}", self.prefix, next / 250, next % 250);
        self.addresses.entry(name.to_string()).or_insert_with(new).clone()
    }

    /// The address that was given before.
    pub fn known(&self, name: &str) -> Option<&str> {
        self.addresses.get(name).map(String::as_str)
    }

    /// The port that the proxy of a Gateway binds for a port of the Gateway.
    pub fn port(&mut self, gateway: &str, port: u64) -> u16 {
        if !self.on_loopback {
            return u16::try_from(port).unwrap_or_default();
        }
        let key = (gateway.to_string(), port);
        if let Some(known) = self.ports.get(&key) {
            return *known;
        }
        let found = free_port();
        self.ports.insert(key, found);
        found
    }
}

/// A pod of a Deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub labels: Map<String, Value>,
    pub address: String,
    /// The pod's specification.
    pub spec: Value,
}

impl Pod {
    /// The value of a variable of its first container.
    pub fn variable(&self, name: &str) -> Option<&str> {
        list(&self.spec["containers"][0]["env"]).find(|e| e["name"] == name).map(|e| text(&e["value"]))
    }
}

/// A pod for every Deployment.
pub fn pods(documents: &[Value], plan: &mut Plan) -> Vec<Pod> {
    let deployments = documents.iter().filter(|d| d["kind"] == "Deployment");
    let pod = |deployment: &Value| {
        let (namespace, name) = name_of(deployment);
        let (template, name) = (&deployment["spec"]["template"], format!("{name}-0"));
        // Another specification under an old name is another pod.
        let address = plan.address(&format!("pod/{namespace}/{name}/{}", template["spec"]));
        let labels = template["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        Pod { namespace, name, labels, address, spec: template["spec"].clone() }
    };
    deployments.map(pod).collect()
}

/// The manifests as the cluster holds them, and the objects that its controllers add.
pub fn complete(documents: Vec<Value>, plan: &mut Plan) -> Vec<Value> {
    let pods = pods(&documents, plan);
    let mut all: Vec<Value> = pods.iter().map(pod_document).collect();
    for document in &documents {
        all.extend(slice_of_service(document, &pods));
        all.extend(managed(document, &documents, plan));
    }
    for mut document in documents {
        match text(&document["kind"]) {
            "Service" if document["spec"]["clusterIP"].is_null() => {
                let (namespace, name) = name_of(&document);
                let address = plan.address(&format!("service/{namespace}/{name}"));
                document["spec"]["clusterIPs"] = json!([&address]);
                document["spec"]["clusterIP"] = address.into();
            }
            // The suite itself puts the pods of this backend into the slices that its manifests leave empty.
            "EndpointSlice" if document["endpoints"].is_null() && document["addressType"] == "IPv4" => {
                let chosen = pods.iter().filter(|p| p.name == "infra-backend-v1-0");
                document["endpoints"] = chosen.map(endpoint).collect();
            }
            _ => {}
        }
        all.push(document);
    }
    all
}

fn name_of(document: &Value) -> (String, String) {
    let meta = &document["metadata"];
    (text(&meta["namespace"]).to_string(), text(&meta["name"]).to_string())
}

fn pod_document(pod: &Pod) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "labels": pod.labels},
        "spec": pod.spec,
        "status": {"phase": "Running", "podIP": pod.address, "podIPs": [{"ip": pod.address}],
            "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn endpoint(pod: &Pod) -> Value {
    json!({"addresses": [pod.address], "conditions": {"ready": true, "serving": true, "terminating": false},
        "targetRef": {"kind": "Pod", "name": pod.name, "namespace": pod.namespace}})
}

fn slice_of_service(service: &Value, pods: &[Pod]) -> Option<Value> {
    let selector = service["spec"]["selector"].as_object().filter(|_| service["kind"] == "Service")?;
    let (namespace, name) = name_of(service);
    let chosen = |pod: &&Pod| pod.namespace == namespace && selector.iter().all(|(k, v)| pod.labels.get(k) == Some(v));
    let port = |port: &Value| {
        let target = port["targetPort"].as_u64().or(port["port"].as_u64());
        let mut given = json!({"name": text(&port["name"]), "port": target,
            "protocol": port["protocol"].as_str().unwrap_or("TCP")});
        if let Some(protocol) = port["appProtocol"].as_str() {
            given["appProtocol"] = protocol.into();
        }
        given
    };
    let ports: Vec<Value> = list(&service["spec"]["ports"]).map(port).collect();
    let endpoints: Vec<Value> = pods.iter().filter(chosen).map(endpoint).collect();
    Some(slice(&namespace, &name, &ports, &endpoints))
}

fn slice(namespace: &str, service: &str, ports: &[Value], endpoints: &[Value]) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("{service}-slice"), "namespace": namespace,
            "labels": {"kubernetes.io/service-name": service}},
        "ports": ports, "endpoints": endpoints})
}

/// The name of a Gateway's proxy and of its Service.
pub fn proxy_name(gateway: &str) -> String {
    format!("{gateway}-istio")
}

/// The listeners of a Gateway and of the ListenerSets that are attached to it.
pub fn listeners<'a>(gateway: &'a Value, all: &'a [Value]) -> impl Iterator<Item = &'a Value> {
    let (namespace, name) = name_of(gateway);
    let attached = move |set: &Value| {
        let parent = &set["spec"]["parentRef"];
        let parent_namespace = parent["namespace"].as_str().unwrap_or_else(|| text(&set["metadata"]["namespace"]));
        set["kind"] == "ListenerSet" && parent["name"] == name && parent_namespace == namespace
    };
    let owners = std::iter::once(gateway).chain(all.iter().filter(move |set| attached(set)));
    owners.flat_map(|owner| list(&owner["spec"]["listeners"]))
}

/// The port of a listener.
pub fn port_of(listener: &Value) -> u64 {
    let default = if listener["protocol"] == "HTTPS" { 443 } else { 80 };
    listener["port"].as_u64().unwrap_or(default)
}

/// The Service, the pod and the endpoint of a Gateway.
fn managed(gateway: &Value, all: &[Value], plan: &mut Plan) -> Vec<Value> {
    if gateway["kind"] != "Gateway" {
        return Vec::new();
    }
    let (namespace, name) = name_of(gateway);
    let (service, key) = (proxy_name(&name), format!("{namespace}/{name}"));
    // No cluster takes a Service, or a label, of such a length.
    if service.len() > 63 {
        return Vec::new();
    }
    // The first listener of a port names it.
    let mut named: BTreeMap<u64, &Value> = BTreeMap::new();
    for listener in listeners(gateway, all) {
        named.entry(port_of(listener)).or_insert(listener);
    }
    let labels = json!({"gateway.networking.k8s.io/gateway-name": name,
        "gateway.istio.io/managed": "istio.io-gateway-controller"});
    let (mut ports, mut targets) = (Vec::new(), Vec::new());
    for (number, listener) in named {
        let (port_name, target) = (format!("{}-{number}", text(&listener["name"])), plan.port(&key, number));
        let protocol = text(&listener["protocol"]).to_lowercase();
        ports.push(json!({"name": port_name, "port": number, "protocol": "TCP", "targetPort": target,
            "appProtocol": protocol}));
        targets.push(json!({"name": port_name, "port": target, "protocol": "TCP", "appProtocol": protocol}));
    }
    let cluster_ip = plan.address(&format!("service/{namespace}/{service}"));
    let pod = Pod {
        address: plan.address(&format!("gateway/{key}")),
        name: format!("{service}-0"),
        labels: labels.as_object().cloned().unwrap_or_default(),
        spec: json!({"containers": [{"name": "istio-proxy", "image": "envoy"}]}),
        namespace: namespace.clone(),
    };
    vec![
        json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": service, "namespace": namespace, "labels": labels},
            "spec": {"type": "LoadBalancer", "clusterIP": cluster_ip, "clusterIPs": [cluster_ip], "ports": ports,
                "selector": {"gateway.networking.k8s.io/gateway-name": name}},
            "status": {"loadBalancer": {"ingress": [{"ip": "172.18.0.5"}]}}}),
        pod_document(&pod),
        slice(&namespace, &service, &targets, &[endpoint(&pod)]),
    ]
}
