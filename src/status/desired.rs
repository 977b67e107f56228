//! What we say about every object: statuses of translated objects, and conditions and addresses of Istio's.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{addresses::Claims, distribution::Distribution};
use crate::{
    model::{Config, ConfigKey, ConfigSnapshot},
    push::PushContext,
};

/// The statuses of all objects, without transition times. Those of Istio's kinds hold only the fields that are ours.
#[must_use]
pub fn statuses(context: &PushContext, distribution: &Distribution, claims: &Claims) -> BTreeMap<ConfigKey, Value> {
    let mut all = context.translation.statuses.clone();
    for (key, condition) in distribution.conditions() {
        all.insert(key.clone(), json!({ "conditions": [condition] }));
    }
    for (key, addresses) in claims.addresses() {
        let status = all.entry(key.clone()).or_insert_with(|| json!({}));
        status["addresses"] = addresses;
    }
    all
}

/// The objects in force of these statuses, in the order of their keys.
pub fn objects<'a, T>(
    configs: &'a ConfigSnapshot,
    statuses: &'a BTreeMap<ConfigKey, T>,
) -> BTreeMap<ConfigKey, &'a Config> {
    let mut kinds: Vec<_> = statuses.keys().map(|key| key.kind).collect();
    kinds.dedup();
    let all = kinds.into_iter().flat_map(|kind| configs.list(kind)).filter(|c| c.is_of_main_cluster());
    all.map(|c| (c.key(), &**c)).filter(|(key, _)| statuses.contains_key(key)).collect()
}

/// An object with its status, as the pages show it.
#[must_use]
pub fn shown(config: &Config, status: &Value, write: Option<Value>) -> Value {
    let meta = &config.meta;
    let mut row = json!({
        "apiVersion": &*meta.api_version, "kind": config.kind().as_str(),
        "namespace": &*meta.namespace, "name": &*meta.name,
        "generation": meta.generation, "source": &*config.origin.source,
        "status": status,
    });
    if let Some(write) = write {
        row["write"] = write;
    }
    row
}
