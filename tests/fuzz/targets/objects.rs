//! Objects → context → generation. The objects are the known ones with random changes: a value of another place, a field
//! less, an entry twice. Those that are refused have no effect; the others are generated for every kind of proxy.

use std::sync::Arc;

use pilothouse::{
    generate::secret,
    model::{Config, Kind, KindClass, Mesh},
    push::PushContext,
    simulate::{Call, CallProtocol, CallTls},
};
use serde_json::{Map, Value, json};

use super::{
    documents::check_round_trip,
    world::{self, Choices, DOCUMENTS, World, inputs, pieces, taken},
};

/// Objects of one mesh.
const MOST: usize = 24;

/// Scalars with a history.
const SCALARS: &[&str] = &[
    "0",
    "1",
    "-1",
    "80",
    "443",
    "65535",
    "65536",
    "4294967295",
    "-2147483648",
    "9007199254740993",
    "1.5",
    "true",
    "false",
    "null",
    "{}",
    "[]",
    "\"\"",
    "\"*\"",
    "\"a\"",
    "\"pay.test\"",
    "\"*.test\"",
    "\"api.shop.svc.cluster.local\"",
    "\"0s\"",
    "\"-1s\"",
    "\"1ms\"",
    "\"10000h\"",
    "\"8080\"",
    "\"HTTP\"",
    "\"TLS\"",
    "\"10.0.0.1\"",
    "\"fd00::1\"",
    "\"0.0.0.0\"",
    "\"10.0.0.0/8\"",
    "\"/\"",
    "\"/a%2fb\"",
    "\"[a-z]+(\"",
    "\"unix:///a\"",
    "\"mesh\"",
    "\"./*\"",
    "\"~/*\"",
    "\"é\\u0000\"",
    "\"%REQ(a)%\"",
    "\"shop\"",
    "\"istio-system\"",
    "\".\"",
    "\"..\"",
];

/// A random place in a document.
fn place<'a>(value: &'a mut Value, choices: &mut Choices<'_>) -> &'a mut Value {
    let mut at = value;
    loop {
        let children = match at {
            Value::Object(map) => map.len(),
            Value::Array(list) => list.len(),
            _ => 0,
        };
        if children == 0 || choices.chance(8) {
            return at;
        }
        let child = choices.below(children);
        at = match at {
            Value::Object(map) => map.values_mut().nth(child).unwrap(),
            Value::Array(list) => &mut list[child],
            _ => unreachable!(),
        };
    }
}

pub fn change(document: &mut Value, choices: &mut Choices<'_>) {
    let what = choices.below(7);
    let donor = &DOCUMENTS[choices.below(DOCUMENTS.len())];
    let part = if choices.chance(5) { "metadata" } else { "spec" };
    let Some(part) = document.get_mut(part) else { return };
    let at = place(part, choices);
    match what {
        0..=2 => *at = serde_json::from_str(SCALARS[choices.below(SCALARS.len())]).unwrap(),
        3 => match at {
            Value::Array(list) if !list.is_empty() => {
                let copy = list[choices.below(list.len())].clone();
                list.push(copy);
            }
            Value::Object(map) if !map.is_empty() => {
                let key = map.keys().nth(choices.below(map.len())).unwrap().clone();
                map.remove(&key);
            }
            other => *other = Value::Null,
        },
        4 => match at {
            Value::Array(list) if !list.is_empty() => drop(list.remove(choices.below(list.len()))),
            other => *other = Value::Null,
        },
        5 => {
            // A value of the same name from elsewhere.
            if let Value::Object(map) = at {
                let Some(key) = map.keys().nth(choices.below(map.len())).cloned() else { return };
                if let Some(found) = found(donor, &key) {
                    map.insert(key, found.clone());
                }
            }
        }
        _ => {
            let mut donor = donor["spec"].clone();
            *at = place(&mut donor, choices).take();
        }
    }
}

fn found<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(map) => map.get(key).or_else(|| map.values().find_map(|v| found(v, key))),
        Value::Array(list) => list.iter().find_map(|v| found(v, key)),
        _ => None,
    }
}

/// Documents as the bytes choose them: known ones of this family, changed, and the objects that they may refer to.
pub fn chosen(data: &[u8], family: &[Kind]) -> Vec<Value> {
    let mut choices = Choices::of(data);
    let own: Vec<&Value> = DOCUMENTS.iter().filter(|d| world::is_of(family, d)).collect();
    let mut all = Vec::new();
    for _ in 0..=choices.below(MOST) {
        let of_family = !choices.chance(3);
        let document =
            if of_family { own[choices.below(own.len())] } else { &DOCUMENTS[choices.below(DOCUMENTS.len())] };
        let mut document = document.clone();
        for _ in 0..choices.below(6) {
            change(&mut document, &mut choices);
        }
        all.push(document);
    }
    all
}

fn mesh() -> Mesh {
    Mesh::from_values(&json!({}), &Value::Null, "cluster.local", "Kubernetes").unwrap()
}

/// The objects that are taken of these, and the mesh that they make.
pub fn made(documents: &[Value]) -> World {
    let size = documents.iter().map(|d| d.to_string().len()).sum();
    World::of(documents.iter().filter_map(taken).collect(), mesh(), size)
}

fn run(data: &[u8], class: fn(Kind) -> bool) {
    let kinds: Vec<Kind> = Kind::ALL.iter().copied().filter(|k| class(*k)).collect();
    let documents = chosen(data, &kinds);
    documents.iter().filter_map(taken).for_each(|config| check_round_trip(&config));
    let world = made(&documents);
    world.serve_all();
    let again = made(&documents);
    for (node, identity) in &world.nodes {
        let one = world.sent(node, identity.as_ref());
        assert_eq!(one, again.sent(node, identity.as_ref()), "another build of the same objects sends something else");
    }
}

/// Istio's objects.
pub fn istio_objects(data: &[u8]) {
    run(data, |kind| kind.class() == KindClass::Istio);
}

/// Objects of Gateway API, and Ingresses.
pub fn gateway_api_objects(data: &[u8]) {
    run(data, |kind| kind.class() == KindClass::GatewayApi || kind == Kind::Ingress);
}

/// Services, endpoints, pods, nodes.
pub fn kubernetes_objects(data: &[u8]) {
    run(data, |kind| kind.class() == KindClass::Kubernetes);
}

/// A mesh that changes: the next context gives the same as a new one.
pub fn changes(data: &[u8]) {
    let (before, after) = data.split_at(data.len() / 2);
    let before = chosen(before, Kind::ALL);
    let mut after = chosen(after, Kind::ALL);
    // Most stays as it is.
    after.extend(before.iter().skip(2).cloned());
    let configs = |documents: &[Value]| -> Vec<Arc<Config>> { documents.iter().filter_map(taken).collect() };
    let first = PushContext::build(inputs(configs(&before), mesh()));
    let inputs = inputs(configs(&after), mesh());
    let size = 64 << 10;
    let (next, cold) = (World::with(first.next(inputs.clone()), size), World::with(PushContext::build(inputs), size));
    for (node, identity) in &cold.nodes {
        let (next, cold) = (next.sent(node, identity.as_ref()), cold.sent(node, identity.as_ref()));
        assert_eq!(next, cold, "the next context gives something else than a new one");
    }
}

/// An EnvoyFilter with a patch of any value: the target on the first byte, the value as JSON.
pub fn envoy_filters(data: &[u8]) {
    const TARGETS: &[&str] = &[
        "LISTENER",
        "FILTER_CHAIN",
        "NETWORK_FILTER",
        "HTTP_FILTER",
        "ROUTE_CONFIGURATION",
        "VIRTUAL_HOST",
        "HTTP_ROUTE",
        "CLUSTER",
        "EXTENSION_CONFIG",
        "BOOTSTRAP",
        "LISTENER_FILTER",
    ];
    let mut choices = Choices::of(data);
    let target = TARGETS[choices.below(TARGETS.len())];
    let operation = ["MERGE", "ADD", "INSERT_FIRST", "REMOVE", "REPLACE"][choices.below(5)];
    let Ok(value @ Value::Object(_)) = serde_json::from_slice::<Value>(choices.all()) else { return };
    let document = json!({"apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter",
        "metadata": {"name": "f", "namespace": "shop"},
        "spec": {"configPatches": [{"applyTo": target, "patch": {"operation": operation, "value": value}}]}});
    if let Some(config) = taken(&document) {
        check_round_trip(&config);
    }
}

/// Certificates and keys in a Secret, and the SDS secrets made of them.
pub fn certificates(data: &[u8]) {
    let keys = ["tls.crt", "tls.key", "ca.crt", "ca.crl", "cert", "key", "cacert"];
    let parts = keys.iter().zip(pieces(data)).map(|(key, bytes)| ((*key).to_string(), base64(bytes).into()));
    let parts: Map<String, Value> = parts.collect();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "shop"},
        "data": parts});
    let world = World::of(taken(&secret).into_iter().collect(), mesh(), data.len());
    let (node, identity) = &world.nodes[0];
    let view = world.context.view_of(node);
    let names = ["kubernetes://s".to_string(), "kubernetes://s-cacert".to_string()];
    let sent = secret::secrets(&world.context, &view, &names, identity.as_ref());
    assert!(sent.resources.len() + sent.refused.len() <= 2);
    assert!(sent.refused.iter().all(|r| r.reason.len() <= 4096));
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let number = chunk.iter().chain([&0; 2]).take(3).fold(0u32, |n, b| n << 8 | u32::from(*b));
        for at in 0..4 {
            let digit = DIGITS[(number >> (18 - 6 * at) & 63) as usize] as char;
            text.push(if at <= chunk.len() { digit } else { '=' });
        }
    }
    text
}

/// A call: proxy, protocol and TLS by bytes, then address, port, host, path, SNI and ALPN, a line each.
pub fn calls(data: &[u8]) {
    let mut choices = Choices::of(data);
    let proxy = choices.below(6);
    let protocol = [CallProtocol::Http, CallProtocol::Http2, CallProtocol::Tcp][choices.below(3)];
    let tls = [CallTls::Plaintext, CallTls::Tls, CallTls::Mtls][choices.below(3)];
    let inbound = choices.chance(3);
    let text = String::from_utf8_lossy(choices.all());
    let mut lines = text.lines().map(String::from);
    let mut next = || lines.next().unwrap_or_default();
    let call = Call {
        address: next(),
        port: next().parse().unwrap_or(80),
        host: next(),
        path: next(),
        sni: next(),
        alpn: next(),
        mtls_secret: next(),
        protocol,
        tls,
        inbound,
    };
    world::fixed().call(proxy, &call);
}
