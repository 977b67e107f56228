//! The selection of patches and their order.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::{
    model::{Config, ConfigSnapshot, Locality, Origin, decode},
    proto::networking::envoy_filter::ApplyTo,
    push::{Change, PushContext},
};

fn filter(namespace: &str, name: &str, created: u32, spec: Value) -> Arc<Config> {
    let document = json!({
        "apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")},
        "spec": spec,
    });
    Arc::new(decode::from_value(&document, Origin::default()).expect("an EnvoyFilter"))
}

fn patch(context: &str, proxy: Value) -> Value {
    json!({"applyTo": "CLUSTER", "match": {"context": context, "proxy": proxy},
        "patch": {"operation": "MERGE", "value": {"connect_timeout": "1s"}}})
}

fn context(filters: &[Arc<Config>]) -> PushContext {
    let configs = ConfigSnapshot::of(filters.iter().cloned());
    PushContext::build(PushInputs { configs, ..PushInputs::default() })
}

fn set(context: &PushContext, kind: &str, metadata: Value) -> Arc<PatchSet> {
    let id = format!("{kind}~10.0.0.1~p.shop~shop.svc.cluster.local");
    let node = Node::from_parts(&id, metadata, Locality::default()).expect("a node");
    context.view_of(&node).patches
}

fn names(set: &PatchSet) -> Vec<String> {
    set.of(ApplyTo::Cluster).iter().map(|p| format!("{}[{}]", p.filter.name, p.index)).collect()
}

#[test]
fn the_order_is_priority_then_root_then_age_then_name() {
    let plain = |priority: i32| json!({"priority": priority, "configPatches": [patch("ANY", json!({}))]});
    let context = context(&[
        filter("shop", "old", 1, plain(0)),
        filter("shop", "b", 2, plain(0)),
        filter("shop", "a", 2, plain(0)),
        filter("istio-system", "root", 9, plain(0)),
        filter("shop", "first", 9, plain(-1)),
        filter("istio-system", "last", 0, plain(5)),
        filter("bank", "other", 0, plain(0)),
    ]);
    let all = set(&context, "sidecar", json!({}));
    assert_eq!(names(&all), ["first[0]", "root[0]", "old[0]", "a[0]", "b[0]", "last[0]"]);
}

#[test]
fn kind_version_metadata_and_labels_choose() {
    let context = context(&[
        filter(
            "shop",
            "f",
            0,
            json!({"configPatches": [
                patch("SIDECAR_OUTBOUND", json!({})),
                patch("GATEWAY", json!({})),
                patch("ANY", json!({"proxyVersion": r"^1\.3.*"})),
                patch("ANY", json!({"metadata": {"ROLE": "edge"}})),
                patch("ANY", json!({"proxyVersion": "x".repeat(1025)})),
                patch("WAYPOINT", json!({})),
            ]}),
        ),
        filter(
            "shop",
            "labelled",
            1,
            json!({"workloadSelector": {"labels": {"app": "a"}}, "configPatches": [patch("ANY", json!({}))]}),
        ),
        filter(
            "shop",
            "gateway",
            2,
            json!({"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "g"}],
                "configPatches": [patch("ANY", json!({}))]}),
        ),
    ]);
    assert_eq!(names(&set(&context, "sidecar", json!({}))), ["f[0]"]);
    assert_eq!(names(&set(&context, "router", json!({}))), ["f[1]"]);
    let newer = json!({"ISTIO_VERSION": "1.32.0", "ROLE": "edge", "LABELS": {"app": "a"}});
    assert_eq!(names(&set(&context, "sidecar", newer)), ["f[0]", "f[2]", "f[3]", "labelled[0]"]);
    let gateway = json!({"LABELS": {"gateway.networking.k8s.io/gateway-name": "g"}});
    assert_eq!(names(&set(&context, "router", gateway)), ["f[1]", "gateway[0]"]);
}

#[test]
fn equal_selections_are_one_set_and_halves_hold_their_targets() {
    let context = context(&[filter(
        "shop",
        "f",
        0,
        json!({"configPatches": [patch("ANY", json!({})), patch("SIDECAR_INBOUND", json!({}))]}),
    )]);
    let (one, two) = (set(&context, "sidecar", json!({"LABELS": {"x": "1"}})), set(&context, "sidecar", json!({})));
    assert!(Arc::ptr_eq(&one, &two));
    assert_eq!(names(&one.routing()), ["f[0]"]);
    assert!(one.outbound().is_empty() && PatchSet::none().is_empty());
}

#[test]
fn patches_without_effect_are_named_and_the_others_count() {
    let context = context(&[filter(
        "shop",
        "f",
        0,
        json!({"configPatches": [
            {"applyTo": "CLUSTER", "patch": {"operation": "REPLACE", "value": {"name": "c"}}},
            {"applyTo": "CLUSTER", "patch": {"operation": "ADD", "value": {"name": "c", "connect_timeout": 7}}},
            {"applyTo": "CLUSTER", "patch": {"operation": "INSERT_FIRST", "value": {"name": "c"}}},
        ]}),
    )]);
    assert_eq!(names(&set(&context, "sidecar", json!({}))), ["f[2]"]);
    let faults = context.envoy_filters.faults_of(&context.inputs.configs.list(Kind::EnvoyFilter)[0]);
    assert_eq!(faults.len(), 2);
    assert_eq!(faults[0], "configPatches[0] is skipped: REPLACE has no effect on CLUSTER");
    assert!(faults[1].starts_with("configPatches[1] is skipped: "), "{faults:?}");
}

#[test]
fn a_change_is_for_the_proxies_that_a_filter_selects_or_selected() {
    let selecting = |app: &str, timeout: &str| {
        let mut patch = patch("ANY", json!({}));
        patch["patch"]["value"]["connect_timeout"] = timeout.into();
        let mut spec = json!({"configPatches": [patch]});
        if !app.is_empty() {
            spec["workloadSelector"] = json!({"labels": {"app": app}});
        }
        spec
    };
    let of_gateway = json!({"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "g"}],
        "configPatches": [patch("ANY", json!({}))]});
    let filters = [
        vec![],
        vec![filter("shop", "f", 0, selecting("", "1s"))],
        vec![filter("shop", "f", 0, selecting("a", "1s"))],
        vec![filter("shop", "f", 0, selecting("b", "1s"))],
        vec![filter("istio-system", "f", 0, selecting("a", "1s"))],
        vec![filter("istio-system", "f", 0, selecting("", "1s")), filter("bank", "f", 0, selecting("a", "1s"))],
        vec![filter("istio-system", "f", 0, selecting("", "1s")), filter("bank", "f", 0, selecting("a", "2s"))],
        vec![filter("shop", "g", 0, of_gateway)],
    ];
    let node = |namespace: &str, app: &str| {
        let id = format!("sidecar~10.0.0.1~p.{namespace}~{namespace}.svc.cluster.local");
        let labels = json!({"LABELS": {"app": app, "gateway.networking.k8s.io/gateway-name": if app == "g" { app } else { "" }}});
        Node::from_parts(&id, labels, Locality::default()).expect("a node")
    };
    let places = [("shop", "a"), ("shop", "b"), ("bank", "a"), ("bank", "b"), ("istio-system", "b"), ("shop", "g")];
    let nodes: Vec<Node> = places.iter().map(|(namespace, app)| node(namespace, app)).collect();
    let (mut touched, mut spared) = (0, 0);
    for (old, new) in filters.iter().flat_map(|old| filters.iter().map(move |new| (old, new))) {
        let before = context(old);
        let configs = ConfigSnapshot::of(new.iter().cloned());
        let now = before.next(PushInputs { configs, ..before.inputs.clone() });
        let change = Change::between(&before, &now);
        for node in &nodes {
            let is_touched = change.differences().nodes().touch(node, || now.labels_of(node));
            let differs = before.view_of(node).patches != now.view_of(node).patches;
            assert!(is_touched || !differs, "{old:?} {new:?} {node:?}");
            touched += usize::from(is_touched);
            spared += usize::from(!differs && !is_touched);
        }
    }
    // One filter of a namespace and one of labels are for nobody else.
    let moved = |old: usize, new: usize| {
        let before = context(&filters[old]);
        let configs = ConfigSnapshot::of(filters[new].iter().cloned());
        let now = before.next(PushInputs { configs, ..before.inputs.clone() });
        let change = Change::between(&before, &now);
        let is_touched = |node: &&Node| change.differences().nodes().touch(node, || now.labels_of(node));
        nodes.iter().filter(is_touched).map(|node| node.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(moved(0, 2), ["p.shop"]);
    assert_eq!(moved(2, 3), ["p.shop", "p.shop"]);
    assert_eq!(moved(0, 4), ["p.shop", "p.bank"]);
    assert_eq!(moved(5, 6), ["p.bank"]);
    assert_eq!(moved(5, 5), Vec::<String>::new());
    assert!(touched > 50 && spared > 50, "{touched} {spared}");
}
