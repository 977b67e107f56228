//! `next` and `build` build equal contexts, and `next` keeps the parts whose inputs did not change.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::model::{
    Config, ConfigSnapshot, Endpoint, EndpointSet, Locality, Node, Origin, Registry, RegistrySnapshot, Service,
    ShardKey, decode,
};

fn config(kind: &str, name: &str, spec: Value) -> Arc<Config> {
    let group = if kind == "PeerAuthentication" { "security" } else { "networking" };
    let document = json!({
        "apiVersion": format!("{group}.istio.io/v1"), "kind": kind,
        "metadata": {"name": name, "namespace": "x"}, "spec": spec,
    });
    Arc::new(decode::from_value(&document, Origin::default()).expect("an object"))
}

/// One object of a small set: the number decides kind, name and content.
fn object(n: u8) -> Arc<Config> {
    let host = format!("h{}", n % 3);
    let name = format!("n{}", n % 4);
    match n % 7 {
        0 => config("VirtualService", &name, json!({"hosts": [host], "http": [{"name": "r"}]})),
        1 => config("VirtualService", &name, json!({"http": [{"name": host}]})),
        2 => config("VirtualService", &name, json!({"hosts": [host], "http": [{"delegate": {"name": "n1"}}]})),
        3 => config("DestinationRule", &name, json!({"host": host, "subsets": [{"name": name}]})),
        4 => config("Sidecar", &name, json!({"egress": [{"hosts": [format!("x/{host}.x.svc.cluster.local")]}]})),
        5 => config("PeerAuthentication", &name, json!({"selector": {"matchLabels": {"app": host}}})),
        _ => config("Gateway", &name, json!({"selector": {"istio": host}})),
    }
}

fn inputs(objects: &[u8], services: &[u8], endpoints: u32) -> PushInputs {
    let mut by_key = std::collections::BTreeMap::new();
    for object in objects.iter().map(|n| object(*n)) {
        by_key.insert(object.key(), object);
    }
    let service = |n: &u8| {
        let hostname = format!("h{}.x.svc.cluster.local", n % 3).as_str().into();
        let node_local = n.is_multiple_of(2);
        Arc::new(Service { hostname, namespace: "x".into(), node_local, ..Service::default() }.stamped())
    };
    let mut index = EndpointIndex::default();
    let shard = ShardKey { provider: Registry::Kubernetes, cluster: "c".into() };
    let endpoint = Arc::new(Endpoint { port: endpoints, ..Endpoint::default() });
    let set = EndpointSet { shards: [(shard, Arc::from([endpoint]))].into(), ..EndpointSet::default() };
    index.by_service.insert(("h0.x.svc.cluster.local".into(), "x".into()), Arc::new(set));
    let services = Arc::new(services.iter().map(service).collect());
    let registry = RegistrySnapshot { services, endpoints: Arc::new(index), ..RegistrySnapshot::default() };
    PushInputs { configs: ConfigSnapshot::of(by_key.into_values()), registry, ..PushInputs::default() }
}

fn view(context: &PushContext) -> ProxyView {
    let id = "sidecar~10.0.0.1~a.x~x.svc.cluster.local";
    let node = Node::from_parts(id, json!({"LABELS": {"app": "h1", "b": "c"}}), Locality::default());
    context.view_of(&node.expect("a node"))
}

/// The contents of all parts, as text.
fn picture(context: &PushContext) -> String {
    let view = view(context);
    let scope = context.scope(&view);
    let routes: Vec<_> = context.virtual_services.all.iter().map(|c| (c.stamp, c.meta.name.clone())).collect();
    let rules: Vec<_> = ["h0", "h1", "h2"]
        .map(|h| context.destination_rules.candidates(&context.inputs, "x", &format!("{h}.x.svc.cluster.local"), "x"))
        .concat();
    let services: Vec<_> = context.services.all.iter().map(|s| s.stamp).collect();
    let gateways: Vec<_> = context.gateways.all.iter().map(|c| c.stamp).collect();
    let policy = context.authn.policy("x", &view.labels);
    format!("{routes:?} {rules:?} {services:?} {gateways:?} {policy:?} {:?} {}", view.labels, scope.stamp)
}

proptest! {
    #[test]
    fn next_equals_a_cold_build(
        steps in proptest::collection::vec((proptest::collection::vec(0u8..84, 0..8), proptest::collection::vec(0u8..6, 0..3), 0u32..3), 1..6),
    ) {
        let mut context = PushContext::build(PushInputs::default());
        for (objects, services, endpoints) in steps {
            let inputs = inputs(&objects, &services, endpoints);
            context = context.next(inputs.clone());
            prop_assert_eq!(picture(&context), picture(&PushContext::build(inputs)));
        }
    }

    #[test]
    fn the_order_of_the_objects_does_not_matter(objects in proptest::collection::vec(0u8..84, 0..8)) {
        let unique: std::collections::BTreeMap<_, _> = objects.iter().map(|n| (object(*n).key(), *n)).collect();
        let sorted: Vec<u8> = unique.values().copied().collect();
        let reversed: Vec<u8> = sorted.iter().rev().copied().collect();
        let picture = |objects: &[u8]| picture(&PushContext::build(inputs(objects, &[0, 1], 0)));
        prop_assert_eq!(picture(&sorted), picture(&reversed));
    }
}

#[test]
fn unchanged_parts_are_shared() {
    let all = [0, 3, 4, 5, 6];
    let first = PushContext::build(inputs(&all, &[0], 0));
    let scope = first.scope(&view(&first));
    let endpoints = first.next(inputs(&all, &[0], 1));
    assert!(Arc::ptr_eq(&endpoints.sidecars, &first.sidecars) && Arc::ptr_eq(&endpoints.services, &first.services));
    assert!(Arc::ptr_eq(&endpoints.scope(&view(&endpoints)), &scope));
    assert!(endpoints.endpoints().by_service.values().all(|set| set.iter().all(|e| e.port == 1)));
    let rules = first.next(inputs(&[0, 10, 4, 5, 6], &[0], 0));
    assert!(Arc::ptr_eq(&rules.virtual_services, &first.virtual_services));
    assert!(!Arc::ptr_eq(&rules.destination_rules, &first.destination_rules));
    assert!(!Arc::ptr_eq(&rules.sidecars, &first.sidecars) && Arc::ptr_eq(&rules.authn, &first.authn));
}
