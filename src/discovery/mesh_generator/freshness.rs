//! The memo tables of the generator are never stale: after any change, and for any proxy, its result equals that of a
//! new generator. A builder that reads something that its key does not hold fails here.

use std::sync::Arc;

use serde_json::{Value, json};

use super::MeshGenerator;
use crate::{
    discovery::generator::{Claim, Generator, Part, Slot},
    model::{Config, ConfigSnapshot, Features, Locality, Mesh, Node, Origin, decode},
    push::{PushContext, context::PushInputs},
    registry::ServiceEntryStore,
    xds::{Resource, ResourceType},
};

fn object(kind: &str, name: &str, spec: Value) -> Arc<Config> {
    let group = if kind == "PeerAuthentication" { "security" } else { "networking" };
    let document = json!({
        "apiVersion": format!("{group}.istio.io/v1"), "kind": kind,
        "metadata": {"name": name, "namespace": "shop"}, "spec": spec,
    });
    Arc::new(decode::from_value(&document, Origin::default()).expect("an object"))
}

fn entry(name: &str, protocol: &str, resolution: &str, address: &str) -> Arc<Config> {
    let endpoint = |version: &str, address: &str| json!({"address": address, "labels": {"version": version}, "locality": format!("r/{version}"), "weight": 3});
    let spec = json!({
        "hosts": [format!("{name}.example")], "location": "MESH_INTERNAL", "resolution": resolution,
        "ports": [{"number": 80, "name": "main", "protocol": protocol}],
        "endpoints": [endpoint("v1", address), endpoint("v2", "10.9.9.9")],
    });
    object("ServiceEntry", name, spec)
}

fn rule(policy: Value) -> Arc<Config> {
    let subsets = json!([{"name": "v1", "labels": {"version": "v1"}}, {"name": "v2", "labels": {"version": "v2"}}]);
    object("DestinationRule", "a", json!({"host": "a.example", "trafficPolicy": policy, "subsets": subsets}))
}

fn context(mesh: &Value, objects: &[Arc<Config>]) -> PushContext {
    let mesh = Arc::new(Mesh::from_values(mesh, &json!({}), "cluster.local", "Kubernetes").expect("mesh settings"));
    let (configs, features) = (ConfigSnapshot::of(objects.iter().cloned()), Arc::new(Features::default()));
    let registry = ServiceEntryStore::of(mesh.clone(), features.clone(), &configs).snapshot();
    PushContext::build(PushInputs { mesh, features, configs, registry, ..PushInputs::default() })
}

/// The states of a mesh, each a small step from the one before.
fn states() -> Vec<PushContext> {
    let a = entry("a", "HTTP", "STATIC", "10.0.0.1");
    let b = entry("b", "TCP", "DNS", "b.internal");
    let quiet = json!({});
    let timeout = json!({"connectionPool": {"tcp": {"connectTimeout": "3s"}}});
    let outliers = json!({"outlierDetection": {"consecutive5xxErrors": 3}});
    let strict = object("PeerAuthentication", "strict", json!({"mtls": {"mode": "STRICT"}}));
    vec![
        context(&quiet, &[a.clone(), b.clone()]),
        context(&quiet, &[entry("a", "HTTP", "STATIC", "10.0.0.2"), b.clone()]),
        context(&quiet, &[entry("a", "GRPC", "STATIC", "10.0.0.2"), b.clone()]),
        context(&quiet, &[a.clone(), b.clone(), rule(json!({}))]),
        context(&quiet, &[a.clone(), b.clone(), rule(timeout)]),
        context(&quiet, &[a.clone(), b.clone(), rule(outliers.clone())]),
        context(&quiet, &[a.clone(), b.clone(), rule(outliers), strict]),
        context(&json!({"connectTimeout": "7s"}), &[a.clone(), b]),
        context(&json!({"localityLbSetting": {"enabled": true}}), &[a, entry("b", "TCP", "DNS", "c.internal")]),
    ]
}

fn proxies() -> Vec<Node> {
    let node = |kind: &str, metadata: Value, zone: &str| {
        let id = format!("{kind}~10.1.0.1~p.shop~shop.svc.cluster.local");
        let locality = Locality { region: "r".into(), zone: zone.into(), ..Locality::default() };
        Node::from_parts(&id, metadata, locality).expect("a node")
    };
    vec![
        node("sidecar", json!({}), "v1"),
        node("sidecar", json!({}), "v2"),
        node("sidecar", json!({"ISTIO_VERSION": "1.28.0", "NETWORK": "n1"}), "v1"),
        node("router", json!({"TLS_CLIENT_CERT_CHAIN": "/chain.pem", "TLS_CLIENT_KEY": "/key.pem"}), "v1"),
    ]
}

fn made(generator: &MeshGenerator, context: &PushContext, node: &Node) -> Vec<Arc<Resource>> {
    let slots = generator.audience(context, node, Claim::default()).slots;
    let wanted = |slot: &&Slot| slot.part == if slot.view.is_router() { Part::Own } else { Part::Routing };
    let slot = slots.iter().find(wanted).expect("a slot");
    let mut all = generator.list(context, slot, ResourceType::Cluster);
    let names: Vec<Arc<str>> = all.iter().map(|cluster| cluster.name().clone()).collect();
    all.extend(generator.named(context, slot, ResourceType::Endpoint, &names));
    all
}

#[test]
fn cached_resources_are_never_stale() {
    let remembering = MeshGenerator::default();
    // Memo tables keep only held values.
    let mut held = Vec::new();
    for (state, context) in states().iter().enumerate() {
        for (proxy, node) in proxies().iter().enumerate() {
            let (got, want) = (made(&remembering, context, node), made(&MeshGenerator::default(), context, node));
            assert!(want.len() > 4, "state {state}, proxy {proxy} has next to nothing");
            assert_eq!(got, want, "state {state}, proxy {proxy}");
            held.push(got);
        }
    }
    let again = made(&remembering, &states()[0], &proxies()[0]);
    let first = held.first().expect("something was made");
    let kept = again.iter().zip(first).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
    assert!(kept >= 4, "equal inputs are built once");
}
