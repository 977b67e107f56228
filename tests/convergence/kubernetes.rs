//! Random objects of Kubernetes.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::{
    objects::{APPS, CERTIFICATES, HOSTS, NODES, PROXIES, address, host, labels, put},
    random::Random,
};

const PORTS: &[(&str, u16, u16)] =
    &[("http", 80, 8080), ("tcp", 9000, 9000), ("grpc", 7070, 7070), ("https", 443, 8443)];

fn ports(random: &mut Random) -> Vec<(&'static str, u16, u16)> {
    let mut ports: Vec<_> = random.some(PORTS, 50).into_iter().copied().collect();
    if ports.is_empty() {
        ports.push(PORTS[0]);
    }
    ports
}

pub fn service(random: &mut Random, name: &str) -> Value {
    let ports: Vec<Value> = ports(random)
        .into_iter()
        .map(|(name, port, target)| json!({"name": name, "port": port, "targetPort": target, "protocol": "TCP"}))
        .collect();
    let at = APPS.iter().position(|app| *app == name).unwrap_or(9);
    let app = if random.chance(80) { name } else { random.of(&APPS) };
    let selector = if name == "gw" { json!({"istio": "ingressgateway"}) } else { json!({"app": app}) };
    let mut value = json!({"metadata": {}, "spec": {"ports": ports, "selector": selector}});
    match random.below(10) {
        0 | 1 => value["spec"]["clusterIP"] = json!("None"),
        2 => {
            value["spec"] =
                json!({"type": "ExternalName", "externalName": host(random).replace('*', "x"), "ports": ports});
        }
        _ => value["spec"]["clusterIP"] = json!(format!("10.96.{}.{at}", random.below(2))),
    }
    let export = *random.of(&["", "", "", "", ".", "~", "*", "shop", "bank"]);
    if !export.is_empty() {
        value["metadata"]["annotations"] = json!({"networking.istio.io/exportTo": export});
    }
    if random.chance(20) {
        value["spec"]["sessionAffinity"] = json!("ClientIP");
    }
    if random.chance(20) {
        value["spec"]["publishNotReadyAddresses"] = json!(true);
    }
    if random.chance(20) {
        put(&mut value["spec"], "trafficDistribution", json!("PreferClose"));
    }
    if random.chance(20) {
        value["metadata"]["labels"] = json!({"app": app});
    }
    value
}

pub fn slice(random: &mut Random, name: &str) -> Value {
    let service = name.split_once('-').map_or(name, |(service, _)| service);
    let ports: Vec<Value> = ports(random)
        .into_iter()
        .map(|(name, _, port)| json!({"name": name, "port": port, "protocol": "TCP"}))
        .collect();
    let endpoints: Vec<Value> = (0..random.below(4))
        .map(|_| {
            let mut endpoint = json!({"addresses": [address(random)], "conditions": {"ready": random.chance(80)}});
            if random.chance(50) {
                let pod = format!("p{}", random.below(4));
                endpoint["targetRef"] = json!({"kind": "Pod", "name": pod, "namespace": "$NS"});
            }
            if random.chance(40) {
                endpoint["nodeName"] = json!(random.of(&NODES));
            }
            if random.chance(20) {
                endpoint["conditions"] = json!({"ready": false, "serving": true, "terminating": true});
            }
            endpoint
        })
        .collect();
    json!({
        "metadata": {"labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
    })
}

pub fn pod(random: &mut Random, name: &str) -> Value {
    let mut labels = labels(random);
    let at: usize = name.trim_start_matches('p').parse().unwrap_or_default();
    let address = match random.chance(70) {
        true => PROXIES[at % PROXIES.len()],
        false => address(random),
    };
    if address == PROXIES[0] {
        labels["istio"] = json!("ingressgateway");
    }
    if random.chance(10) {
        labels["topology.istio.io/network"] = json!("net-2");
    }
    let phase = *random.of(&["Running", "Running", "Running", "Pending", "Succeeded"]);
    json!({
        "metadata": {"labels": labels},
        "spec": {
            "serviceAccountName": random.of(&["default", "special"]), "nodeName": random.of(&NODES),
            "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}],
        },
        "status": {
            "phase": phase, "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": random.of(&["True", "False"])}],
        },
    })
}

pub fn node(random: &mut Random, _: &str) -> Value {
    json!({"metadata": {"labels": {
        "topology.kubernetes.io/region": random.of(&["east", "west"]),
        "topology.kubernetes.io/zone": random.of(&["z1", "z2"]),
    }}})
}

pub fn namespace(random: &mut Random, _: &str) -> Value {
    let mut value = json!({"metadata": {"labels": {"kind": random.of(&["x", "y"])}}});
    if random.chance(30) {
        value["metadata"]["labels"]["topology.istio.io/network"] = json!(random.of(&["net-1", "net-2"]));
    }
    if random.chance(30) {
        value["metadata"]["annotations"] = json!({"networking.istio.io/traffic-distribution": "PreferClose"});
    }
    value
}

/// Certificates and keys, in PEM.
fn certificates() -> &'static [(String, String)] {
    static MADE: OnceLock<Vec<(String, String)>> = OnceLock::new();
    MADE.get_or_init(|| {
        let make = |at: usize| {
            let made = rcgen::generate_simple_self_signed(vec![format!("{at}.example")]).unwrap();
            (made.cert.pem(), made.signing_key.serialize_pem())
        };
        (0..3).map(make).collect()
    })
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = |three: &[u8]| {
        let bits = three.iter().fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte)) << (8 * (3 - three.len()));
        let digit =
            |at: usize| if at <= three.len() { DIGITS[((bits >> (18 - 6 * at)) & 63) as usize] as char } else { '=' };
        [digit(0), digit(1), digit(2), digit(3)]
    };
    text.as_bytes().chunks(3).flat_map(digits).collect()
}

pub fn secret(random: &mut Random, _: &str) -> Value {
    let (cert, key) = random.of(certificates());
    let (ca, _) = random.of(certificates());
    let mut data = json!({"tls.crt": base64(cert), "tls.key": base64(key)});
    if random.chance(50) {
        data["ca.crt"] = json!(base64(ca));
    }
    json!({"metadata": {}, "type": "kubernetes.io/tls", "data": data})
}

pub fn config_map(random: &mut Random, _: &str) -> Value {
    json!({"metadata": {}, "data": {"ca.crt": random.of(certificates()).0}})
}

pub fn ingress(random: &mut Random, _: &str) -> Value {
    let paths: Vec<Value> = (0..1 + random.below(2))
        .map(|at| {
            let backend = json!({"service": {"name": random.of(&APPS), "port": {"number": 80}}});
            json!({"path": format!("/{at}"), "pathType": random.of(&["Prefix", "Exact"]), "backend": backend})
        })
        .collect();
    let mut rule = json!({"http": {"paths": paths}});
    if random.chance(70) {
        rule["host"] = json!(random.of(&HOSTS[..3]));
    }
    let mut spec = json!({"ingressClassName": "istio", "rules": [rule]});
    if random.chance(40) {
        spec["tls"] = json!([{"secretName": random.of(&CERTIFICATES)}]);
    }
    json!({"metadata": {}, "spec": spec})
}
