//! What translators write: Istio objects before they are shared, statuses, reports.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Report,
    gateway_api::{Grants, PoolRule},
};
use crate::{
    model::{Config, ConfigKey, Kind, Labels, Meta, Origin, Spec, Timestamp},
    proto::to_json,
};

/// An Istio object that was made from others.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: String,
    /// Annotations; Istio's `internal.istio.io/…` are read by generation.
    pub annotations: Labels,
    /// Creation time of the object that it was made from.
    pub creation: Timestamp,
    /// Content.
    pub spec: Spec,
}

impl Draft {
    fn key(&self) -> ConfigKey {
        ConfigKey { kind: self.spec.kind(), namespace: self.namespace.clone(), name: self.name.as_str().into() }
    }
}

/// What all translators together have written.
#[derive(Debug, Default)]
pub struct Output {
    drafts: BTreeMap<ConfigKey, Draft>,
    /// Statuses by object.
    pub statuses: BTreeMap<ConfigKey, Value>,
    /// Objects that were refused, and why.
    pub reports: Vec<Report>,
    /// What ReferenceGrants permit.
    pub grants: Grants,
    /// Pickers of endpoints by VirtualService and rule.
    pub pools: BTreeMap<ConfigKey, BTreeMap<String, PoolRule>>,
}

impl Output {
    /// Adds an object. The first of two with the same name stays; `false` says that this was the second.
    pub fn add(&mut self, draft: Draft) -> bool {
        match self.drafts.entry(draft.key()) {
            Entry::Vacant(free) => {
                free.insert(draft);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// Adds the pickers that the rules of a VirtualService ask.
    pub fn add_pools(&mut self, of: &Draft, pools: BTreeMap<String, PoolRule>) {
        if !pools.is_empty() {
            self.pools.insert(of.key(), pools);
        }
    }

    /// Adds the status of an object.
    pub fn status(&mut self, of: ConfigKey, status: Value) {
        self.statuses.insert(of, status);
    }

    /// Says that an object was refused.
    pub fn report(&mut self, key: ConfigKey, message: String) {
        self.reports.push(Report { key, message });
    }

    /// The objects by kind, oldest first; those that are in `known` with the same content are these.
    pub fn configs(&mut self, known: &BTreeMap<ConfigKey, &Arc<Config>>) -> BTreeMap<Kind, Vec<Arc<Config>>> {
        let mut lists: BTreeMap<Kind, Vec<Arc<Config>>> = BTreeMap::new();
        for (key, draft) in std::mem::take(&mut self.drafts) {
            let stamp = stamp(&draft);
            let config = match known.get(&key).filter(|c| c.stamp == stamp) {
                Some(known) => (*known).clone(),
                None => Arc::new(config(&key, draft, stamp)),
            };
            lists.entry(key.kind).or_default().push(config);
        }
        for list in lists.values_mut() {
            list.sort_by(|a, b| a.age_order().cmp(&b.age_order()));
        }
        lists
    }
}

fn config(key: &ConfigKey, draft: Draft, stamp: u64) -> Config {
    let meta = Meta {
        name: key.name.clone(),
        namespace: key.namespace.clone(),
        api_version: key.kind.api_version().into(),
        annotations: draft.annotations,
        creation: draft.creation,
        ..Meta::default()
    };
    Config { meta, spec: draft.spec, status: Value::Null, origin: Origin::default(), stamp }
}

fn stamp(draft: &Draft) -> u64 {
    let spec = match &draft.spec {
        Spec::Gateway(s) => to_json(&**s),
        Spec::VirtualService(s) => to_json(&**s),
        Spec::DestinationRule(s) => to_json(&**s),
        _ => Ok(Value::Null),
    };
    let spec = spec.unwrap_or_default();
    let text = format!("{}/{}/{:?}/{}{spec}", draft.namespace, draft.name, draft.annotations, draft.creation.0);
    xxh3_64(text.as_bytes()).max(1)
}
