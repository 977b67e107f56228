//! The desired status of every object: statuses of translated objects, and conditions and addresses of Istio's.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};

use super::{
    addresses::AddressClaims,
    distribution::{Distribution, is_followed, not_in_force},
};
use crate::{
    discovery::unmet_policies,
    model::{Config, ConfigKey, ConfigSnapshot, Features, Kind, kind::KindClass},
    push::{PushContext, extensions::ExtensionIndex, policies::PolicyIndex},
};

/// Messages about objects.
pub type Messages = BTreeMap<ConfigKey, BTreeSet<String>>;

/// The parts of objects that proxies are not sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Found here.
    pub found: Omitted,
    /// Complaints of clients, which are reported and never written to a status: a client may say anything.
    pub complaints: Messages,
}

/// Messages about objects of which connected proxies are not sent a part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Omitted {
    /// Proxies would refuse it.
    pub refused: Messages,
    /// A policy that gRPC servers cannot enforce, or settings that gRPC clients do not apply.
    pub not_enforced: Messages,
}

/// The statuses of all objects, without transition times. Those of Istio's kinds hold only the fields that are ours.
#[must_use]
pub fn statuses(
    context: &PushContext,
    distribution: &Distribution,
    claims: &AddressClaims,
    left_out: &LeftOut,
) -> BTreeMap<ConfigKey, Value> {
    let mut all = context.translation.statuses.clone();
    for (key, condition) in distribution.conditions() {
        all.insert(key.clone(), json!({ "conditions": [condition] }));
    }
    // Of several reasons the last one stands in the condition, and its message has them all.
    let mut reasons: BTreeMap<ConfigKey, (&Arc<Config>, &str, Vec<String>)> = BTreeMap::new();
    for (config, reason, message) in not_in_force_of(context, left_out) {
        let of_object = reasons.entry(config.key()).or_insert((config, reason, Vec::new()));
        of_object.1 = reason;
        of_object.2.push(message);
    }
    for (key, (config, reason, messages)) in reasons {
        all.insert(key, json!({ "conditions": [not_in_force(config, reason, &messages.join("; "))] }));
    }
    for (key, addresses) in claims.addresses() {
        let status = all.entry(key.clone()).or_insert_with(|| json!({}));
        status["addresses"] = addresses;
    }
    all
}

/// Objects of Istio's kinds that are not in force, or not as a whole: the reason in one word, and in a sentence.
fn not_in_force_of<'a>(
    context: &'a PushContext,
    left_out: &LeftOut,
) -> impl Iterator<Item = (&'a Arc<Config>, &'static str, String)> {
    let configs = &context.inputs.configs;
    let targets =
        |k: &&Kind| PolicyIndex::KINDS.contains(k) || ExtensionIndex::KINDS.contains(k) || **k == Kind::Telemetry;
    let kinds = Kind::ALL.iter().filter(targets);
    let without_effect = kinds.flat_map(move |kind| {
        let followed = configs.list(*kind).iter().filter(|c| is_followed(c));
        followed.filter_map(|c| Some((c, "NotEnforced", c.without_effect()?.to_string())))
    });
    let policies = unmet_policies(context).filter(|(c, ..)| is_followed(c));
    let omitted = [(&left_out.found.not_enforced, "NotEnforced"), (&left_out.found.refused, "RefusedByProxies")];
    let omitted = omitted.map(|(said, reason)| {
        let kinds: BTreeSet<Kind> = said.keys().map(|key| key.kind).collect();
        let followed = kinds.into_iter().flat_map(|kind| configs.list(kind)).filter(|c| is_followed(c));
        let told = followed.filter_map(move |c| {
            let messages: Vec<&str> = said.get(&c.key())?.iter().map(String::as_str).collect();
            Some((c, reason, messages.join("; ")))
        });
        told.collect::<Vec<_>>()
    });
    policies.chain(without_effect).chain(omitted.into_iter().flatten())
}

/// The part of a status that is written: of Istio's kinds the conditions only where `PILOT_ENABLE_STATUS` is on (messages of
/// the analysis are there only where `PILOT_ENABLE_ANALYSIS` is), of Gateway API's everything unless `PILOT_ENABLE_GATEWAY_API_STATUS` is off.
#[must_use]
pub fn written(key: &ConfigKey, mut status: Value, features: &Features) -> Option<Value> {
    match key.kind.class() {
        KindClass::Istio => {
            let fields = status.as_object_mut()?;
            if !features.enable_status {
                fields.shift_remove("conditions");
            }
            (!fields.is_empty()).then_some(status)
        }
        KindClass::GatewayApi => features.enable_gateway_api_status.then_some(status),
        _ => Some(status),
    }
}

/// The objects in force of these statuses, in the order of their keys.
pub fn objects<'a, T>(
    configs: &'a ConfigSnapshot,
    statuses: &'a BTreeMap<ConfigKey, T>,
) -> BTreeMap<ConfigKey, &'a Arc<Config>> {
    let mut kinds: Vec<_> = statuses.keys().map(|key| key.kind).collect();
    kinds.dedup();
    let all = kinds.into_iter().flat_map(|kind| configs.list(kind)).filter(|c| c.is_of_main_cluster());
    all.map(|c| (c.key(), c)).filter(|(key, _)| statuses.contains_key(key)).collect()
}

/// Findings of the translation on objects that have no place in a status.
#[must_use]
pub fn reports<'a>(context: &'a PushContext, left_out: &'a LeftOut) -> BTreeMap<ConfigKey, Vec<&'a str>> {
    let mut all: BTreeMap<ConfigKey, Vec<&str>> = BTreeMap::new();
    for report in &context.translation.reports {
        all.entry(report.key.clone()).or_default().push(&report.message);
    }
    let found = left_out.found.refused.iter().chain(&left_out.found.not_enforced);
    for (key, said) in found.chain(&left_out.complaints) {
        all.entry(key.clone()).or_default().extend(said.iter().map(String::as_str));
    }
    all
}

/// An object with its status, as the pages show it. `reports` are the findings that have no place in the status.
#[must_use]
pub fn shown(config: &Config, status: &Value, reports: Option<&Vec<&str>>, write: Option<Value>) -> Value {
    let meta = &config.meta;
    let mut row = json!({
        "apiVersion": &*meta.api_version, "kind": config.kind().as_str(),
        "namespace": &*meta.namespace, "name": &*meta.name,
        "generation": meta.generation, "source": &*config.origin.source,
        "status": status,
    });
    if let Some(reports) = reports {
        row["reports"] = json!(reports);
    }
    if let Some(write) = write {
        row["write"] = write;
    }
    row
}
