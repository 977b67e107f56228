//! The status of a route: one entry for each reference to a parent of Istio's. Entries of other controllers are kept.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    conditions::{Condition, Conditions, Problem},
    parent::{Binding, DenialReason, reference_text},
    types::ParentReference,
};
use crate::model::{Config, Features};

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct ParentStatus {
    parent_ref: ParentReference,
    controller_name: String,
    conditions: Vec<Condition>,
}

/// The problems of the rules of a route, for gateways and for the mesh.
#[derive(Debug, Default)]
pub struct Problems {
    /// Problem of the rules for gateways.
    pub gateway: Option<Problem>,
    /// Problem of the rules for the mesh.
    pub mesh: Option<Problem>,
}

/// The status of a route.
pub fn status(route: &Config, bindings: &[Binding], problems: &Problems, features: &Features) -> Value {
    let namespace = &*route.meta.namespace;
    let controller = &features.gateway_api_controller_name;
    let read = route.status.get("parents").map(|p| Vec::<ParentStatus>::deserialize(p).unwrap_or_default());
    let old = read.unwrap_or_default();
    let mut kept: Vec<Option<ParentStatus>> = Vec::with_capacity(old.len());
    let mut own: BTreeMap<String, usize> = BTreeMap::new();
    let mut conditions_before: BTreeMap<String, Vec<Condition>> = BTreeMap::new();
    for (index, parent) in old.into_iter().enumerate() {
        if parent.controller_name != *controller {
            kept.push(Some(parent));
            continue;
        }
        let text = reference_text(&parent.parent_ref, namespace);
        conditions_before.entry(text.clone()).or_insert_with(|| parent.conditions.clone());
        let first = !own.contains_key(&text);
        own.entry(text).or_insert(index);
        kept.push((!first).then_some(parent));
    }
    let mut added: Vec<(String, ParentStatus)> = Vec::new();
    for group in by_reference(bindings) {
        let Some(first) = group.first() else { continue };
        let text = reference_text(&first.reference, namespace);
        let conditions = conditions(&group, problems, features);
        let before = conditions_before.get(&text).cloned().unwrap_or_default();
        let status = ParentStatus {
            parent_ref: first.reference.clone(),
            controller_name: controller.clone(),
            conditions: conditions.over(before, route.meta.generation),
        };
        match own.remove(&text).and_then(|index| kept.get_mut(index)) {
            Some(place) => *place = Some(status),
            None => added.push((text, status)),
        }
    }
    added.sort_by(|(a, _), (b, _)| b.cmp(a));
    let parents: Vec<ParentStatus> = kept.into_iter().flatten().chain(added.into_iter().map(|(_, s)| s)).collect();
    let mut status = if route.status.is_object() { Value::clone(&route.status) } else { json!({}) };
    status["parents"] = json!(parents);
    status
}

/// Bindings grouped by reference. References with only a name are equal if their names are.
fn by_reference(bindings: &[Binding]) -> Vec<Vec<&Binding>> {
    let mut groups: BTreeMap<usize, Vec<&Binding>> = BTreeMap::new();
    let mut bare: BTreeMap<&str, usize> = BTreeMap::new();
    for binding in bindings {
        let reference = &binding.reference;
        let is_bare = *reference == ParentReference { name: reference.name.clone(), ..ParentReference::default() };
        let index = if is_bare { *bare.entry(&reference.name).or_insert(binding.index) } else { binding.index };
        groups.entry(index).or_default().push(binding);
    }
    groups.into_values().collect()
}

/// Conditions of one reference: it is accepted when any of its listeners accepts the route.
fn conditions(group: &[&Binding], problems: &Problems, features: &Features) -> Conditions {
    let bound = group.iter().filter(|b| b.denial.is_none()).count();
    let message = match bound {
        0 | 1 => "Route was valid".to_string(),
        n => format!("Route was valid, bound to {n} parents"),
    };
    let mut conditions = Conditions::default().good("Accepted", "Accepted", &message).good(
        "ResolvedRefs",
        "ResolvedRefs",
        "All references resolved",
    );
    let rank = |b: &&&Binding| b.denial.as_ref().map(|d| d.reason);
    let Some(reported) = group.iter().min_by_key(rank) else { return conditions };
    let problem = if reported.is_mesh() { &problems.mesh } else { &problems.gateway };
    if let Some(problem) = problem {
        conditions.problem("ResolvedRefs", problem.clone());
    }
    if let Some(reason) = rank(&reported) {
        conditions.problem("Accepted", Problem::new(reason.as_str(), messages(group, reason)));
    }
    if features.enable_ambient {
        let message = reported.waypoint_problem.unwrap_or("All waypoints resolved");
        conditions.set("ResolvedWaypoints", "True", "ResolvedWaypoints", message);
    }
    conditions
}

fn messages(group: &[&Binding], reason: DenialReason) -> String {
    let same = group.iter().filter_map(|b| b.denial.as_ref()).filter(|d| d.reason == reason);
    same.map(|d| d.message.as_str()).collect::<Vec<_>>().join("; ")
}
