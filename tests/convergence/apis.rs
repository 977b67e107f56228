//! Random objects of the Gateway API.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    objects::{APPS, CERTIFICATES, HOSTS, NAMESPACES},
    random::Random,
};

fn listener(random: &mut Random, at: usize) -> Value {
    let name = format!("l{at}");
    let from = json!({"namespaces": {"from": random.of(&["All", "All", "Same"])}});
    let mut listener = match random.below(5) {
        0 => {
            let mut reference = json!({"name": random.of(&CERTIFICATES)});
            if random.chance(50) {
                reference["namespace"] = json!(random.of(&NAMESPACES));
            }
            json!({"name": name, "port": 443, "protocol": "HTTPS", "allowedRoutes": from,
                "tls": {"mode": "Terminate", "certificateRefs": [reference]}})
        }
        1 => {
            json!({"name": name, "port": 9443, "protocol": "TLS", "allowedRoutes": from, "tls": {"mode": "Passthrough"}})
        }
        2 => return json!({"name": name, "port": 9000, "protocol": "TCP", "allowedRoutes": from}),
        _ => json!({"name": name, "port": 80, "protocol": "HTTP", "allowedRoutes": from}),
    };
    if random.chance(50) {
        listener["hostname"] = json!(random.of(&["one.example", "*.wild.example", "two.example"]));
    }
    listener
}

/// Listeners that an API server accepts together: no two have the same port and hostname.
fn listeners(random: &mut Random, places: std::ops::Range<usize>) -> Vec<Value> {
    let mut listeners: Vec<Value> = places.map(|at| listener(random, at)).collect();
    let mut taken = BTreeSet::new();
    listeners.retain(|listener| taken.insert((listener["port"].to_string(), listener["hostname"].to_string())));
    listeners
}

pub fn gateway(random: &mut Random, _: &str) -> Value {
    let places = 0..1 + random.below(3);
    let listeners = listeners(random, places);
    let mut value = json!({"metadata": {}, "spec": {"gatewayClassName": "istio", "listeners": listeners}});
    if random.chance(85) {
        value["spec"]["addresses"] = json!([{"type": "Hostname", "value": "gw.istio-system.svc.cluster.local"}]);
    }
    if random.chance(30) {
        value["spec"]["allowedListeners"] = json!({"namespaces": {"from": "All"}});
    }
    value
}

pub fn listener_set(random: &mut Random, _: &str) -> Value {
    let places = 5..6 + random.below(2);
    let listeners = listeners(random, places);
    json!({"metadata": {}, "spec": {
        "parentRef": {"name": random.of(&["k0", "k1"]), "namespace": random.of(&NAMESPACES)}, "listeners": listeners,
    }})
}

fn parents(random: &mut Random) -> Value {
    let gateway = json!({"name": random.of(&["k0", "k1"]), "namespace": random.of(&NAMESPACES)});
    let service = json!({"group": "", "kind": "Service", "name": random.of(&APPS), "port": 80});
    match random.below(5) {
        0 | 1 => json!([service]),
        2 => json!([gateway, service]),
        _ => json!([gateway]),
    }
}

fn backend(random: &mut Random) -> Value {
    let mut backend = json!({"name": random.of(&APPS), "port": random.of(&[80, 9000])});
    if random.chance(40) {
        backend["namespace"] = json!(random.of(&NAMESPACES[..3]));
    }
    if random.chance(20) {
        backend["weight"] = json!(random.below(3));
    }
    if random.chance(10) {
        return json!({"group": "networking.istio.io", "kind": "Hostname", "name": random.of(&HOSTS[..3]), "port": 80});
    }
    if random.chance(8) {
        return json!({"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "pool"});
    }
    backend
}

fn backends(random: &mut Random) -> Vec<Value> {
    (0..1 + random.below(2)).map(|_| backend(random)).collect()
}

pub fn http_route(random: &mut Random, _: &str) -> Value {
    let mut spec = json!({"parentRefs": parents(random)});
    if random.chance(60) {
        spec["hostnames"] = json!([random.of(&["one.example", "api.wild.example", "two.example"])]);
    }
    let rules: Vec<Value> = (0..1 + random.below(2))
        .map(|_| {
            let mut rule = json!({"backendRefs": backends(random)});
            if random.chance(60) {
                rule["matches"] = json!([{"path": {"type": "PathPrefix", "value": random.of(&["/", "/a", "/b"])}}]);
            }
            if random.chance(30) {
                let set = json!([{"name": "x-set", "value": random.of(&["1", "2"])}]);
                rule["filters"] = json!([{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": set}}]);
            }
            rule
        })
        .collect();
    spec["rules"] = json!(rules);
    json!({"metadata": {}, "spec": spec})
}

pub fn grpc_route(random: &mut Random, _: &str) -> Value {
    let mut spec = json!({"parentRefs": parents(random), "rules": [{"backendRefs": backends(random)}]});
    if random.chance(60) {
        spec["hostnames"] = json!([random.of(&["one.example", "three.example"])]);
    }
    if random.chance(50) {
        spec["rules"][0]["matches"] = json!([{"method": {"service": "s", "method": random.of(&["m", "n"])}}]);
    }
    json!({"metadata": {}, "spec": spec})
}

pub fn tcp_route(random: &mut Random, _: &str) -> Value {
    json!({"metadata": {}, "spec": {"parentRefs": parents(random), "rules": [{"backendRefs": backends(random)}]}})
}

pub fn tls_route(random: &mut Random, _: &str) -> Value {
    json!({"metadata": {}, "spec": {
        "parentRefs": parents(random), "hostnames": [random.of(&["one.example", "two.example"])],
        "rules": [{"backendRefs": backends(random)}],
    }})
}

pub fn reference_grant(random: &mut Random, _: &str) -> Value {
    let from = *random.of(&["Gateway", "Gateway", "HTTPRoute", "GRPCRoute", "TCPRoute"]);
    let to = if from == "Gateway" { "Secret" } else { "Service" };
    let mut target = json!({"group": "", "kind": to});
    if random.chance(40) {
        target["name"] = match to {
            "Secret" => json!(random.of(&CERTIFICATES)),
            _ => json!(random.of(&APPS)),
        };
    }
    json!({"metadata": {}, "spec": {
        "from": [{"group": "gateway.networking.k8s.io", "kind": from, "namespace": random.of(&NAMESPACES)}],
        "to": [target],
    }})
}

pub fn backend_tls_policy(random: &mut Random, _: &str) -> Value {
    json!({"metadata": {}, "spec": {
        "targetRefs": [{"group": "", "kind": "Service", "name": random.of(&APPS)}],
        "validation": {
            "hostname": "backend.example",
            "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": random.of(&["ca-0", "ca-1"])}],
        },
    }})
}

pub fn traffic_policy(random: &mut Random, _: &str) -> Value {
    json!({"metadata": {}, "spec": {
        "targetRefs": [{"group": "", "kind": "Service", "name": random.of(&APPS)}],
        "retryConstraint": {"budget": {"percent": 10 + random.below(20), "interval": "10s"}},
    }})
}

pub fn inference_pool(random: &mut Random, _: &str) -> Value {
    json!({"metadata": {}, "spec": {
        "selector": {"matchLabels": {"app": random.of(&APPS)}}, "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {"name": random.of(&APPS), "port": {"number": 9000}},
    }})
}
