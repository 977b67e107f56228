//! EnvoyFilters on the mesh of all objects: random patches, changed ones among them, for every kind of proxy. Whatever they say, the
//! result decodes, resources of types that none of them is for are the same bytes, and patches on nothing change nothing.

use std::{collections::BTreeSet, sync::LazyLock};

use pilothouse::{discovery::Resources, model::Kind};
use prost::Message;
use serde_json::{Value, json};

use super::{
    objects::{change, made},
    world::{Choices, DOCUMENTS, World},
};

/// Documents without patches: as many as a run can generate again and again.
static PLAIN: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let kinds = ["ServiceEntry", "VirtualService", "DestinationRule", "Gateway", "WorkloadEntry"];
    DOCUMENTS.iter().filter(|d| kinds.iter().any(|kind| d["kind"] == *kind)).take(24).cloned().collect()
});

static BEFORE: LazyLock<World> = LazyLock::new(|| made(&PLAIN));

fn patch(choices: &mut Choices<'_>) -> Value {
    let filters = DOCUMENTS.iter().filter(|d| d["kind"] == Kind::EnvoyFilter.as_str());
    let patches: Vec<Value> =
        filters.flat_map(|d| d["spec"]["configPatches"].as_array().cloned().unwrap_or_default()).collect();
    let mut document = json!({ "spec": patches[choices.below(patches.len())] });
    let other = &patches[choices.below(patches.len())];
    match choices.below(6) {
        0 => document["spec"]["match"] = other["match"].clone(),
        1 => document["spec"]["patch"]["value"] = other["patch"]["value"].clone(),
        2 => document["spec"]["patch"]["operation"] = other["patch"]["operation"].clone(),
        3 => document["spec"]["match"]["context"] = other["match"]["context"].clone(),
        _ => {}
    }
    for _ in 0..choices.below(4) {
        change(&mut document, choices);
    }
    document["spec"].take()
}

fn bytes<M: Message>(made: &[M]) -> Vec<Vec<u8>> {
    made.iter().map(Message::encode_to_vec).collect()
}

/// Encoded resources of the types that no patch is for.
fn untouched(made: &Resources, targets: &BTreeSet<String>) -> Vec<Vec<Vec<u8>>> {
    let any = |names: &[&str]| names.iter().any(|name| targets.contains(*name));
    let routes = any(&["ROUTE_CONFIGURATION", "VIRTUAL_HOST", "HTTP_ROUTE"]);
    let listeners = routes || any(&["LISTENER", "LISTENER_FILTER", "FILTER_CHAIN", "NETWORK_FILTER", "HTTP_FILTER"]);
    let mut all = Vec::new();
    if !any(&["CLUSTER"]) {
        all.push(bytes(&made.clusters));
        all.push(bytes(&made.endpoints));
    }
    if !listeners {
        all.extend([bytes(&made.listeners), bytes(&made.routes)]);
    }
    all
}

/// Random patches.
pub fn envoy_filter_patches(data: &[u8]) {
    let mut choices = Choices::of(data);
    let nothing = choices.chance(4);
    let mut documents = PLAIN.clone();
    let mut targets = BTreeSet::new();
    for filter in 0..=choices.below(4) {
        let mut patches: Vec<Value> = (0..=choices.below(6)).map(|_| patch(&mut choices)).collect();
        if nothing {
            for patch in &mut patches {
                patch["match"]["proxy"] = json!({"metadata": {"NOBODY": "has this"}});
            }
        }
        targets.extend(patches.iter().filter_map(|p| Some(p["applyTo"].as_str()?.to_string())));
        let namespace = ["istio-system", "shop"][choices.below(2)];
        documents.push(json!({"apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter",
            "metadata": {"name": format!("f{filter}"), "namespace": namespace},
            "spec": {"configPatches": patches, "priority": choices.below(3)}}));
    }
    if nothing {
        targets.clear();
    }
    let after = made(&documents);
    for (node, identity) in &after.nodes {
        let (plain, patched) = (BEFORE.sent(node, identity.as_ref()), after.sent(node, identity.as_ref()));
        assert_eq!(untouched(&plain, &targets), untouched(&patched, &targets), "{targets:?} of {}", node.id);
    }
}
