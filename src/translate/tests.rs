//! Tests of the parts that a translation shares with its predecessor.

use serde_json::json;

use super::*;
use crate::model::{Origin, decode::from_value};

#[test]
fn without_anything_to_translate_the_users_lists_stay() {
    let rule = json!({"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
        "metadata": {"name": "a", "namespace": "b"}, "spec": {"host": "h"}});
    let configs = ConfigSnapshot::of([Arc::new(from_value(&rule, Origin::default()).unwrap())]);
    let inputs = PushInputs { configs, ..PushInputs::default() };
    let list = inputs.configs.by_kind[&Kind::DestinationRule].clone();
    let first = Translation::build(inputs.clone());
    let next = first.next(inputs);
    assert!(Arc::ptr_eq(&next.effective().configs.by_kind[&Kind::DestinationRule], &list));
    assert!(next.grants_as(&first));
}

#[test]
fn translated_objects_are_oldest_first_whatever_their_names() {
    let gateway = |name: &str, created: &str| {
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": name, "namespace": "edge", "creationTimestamp": created},
            "spec": {"gatewayClassName": "istio", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}})
    };
    let documents = [
        gateway("a", "2026-03-01T00:00:00Z"),
        gateway("b", "2026-01-01T00:00:00Z"),
        gateway("c", "2026-02-01T00:00:00Z"),
        // Of one age: by name.
        gateway("e", "2026-04-01T00:00:00Z"),
        gateway("d", "2026-04-01T00:00:00Z"),
    ];
    let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "istio"}, "spec": {"controllerName": "istio.io/gateway-controller"}});
    let configs = documents.iter().chain([&class]).map(|d| Arc::new(from_value(d, Origin::default()).unwrap()));
    let inputs = PushInputs { configs: ConfigSnapshot::of(configs), ..PushInputs::default() };
    let translation = Translation::build(inputs.clone());
    // Names begin with the name of the object that they were translated from.
    let sources = |configs: &[Arc<Config>]| -> Vec<String> {
        configs.iter().map(|c| c.meta.name.chars().take(1).collect()).collect()
    };
    assert_eq!(sources(&translation.gateways), ["b", "c", "a", "d", "e"]);
    let again = translation.next(inputs);
    assert_eq!(
        sources(&again.gateways),
        ["b", "c", "a", "d", "e"],
        "a translation that shares the parts keeps the order"
    );
}
