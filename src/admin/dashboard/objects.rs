//! The objects in force: numbers by kind, and a page of them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::listing::{Query, has, page, text};
use crate::{admin::AdminState, model::Config};

pub(super) fn objects(query: &Query, state: &AdminState) -> Value {
    let (kind, group, namespace) = (text(query, "kind"), query.get("group"), text(query, "namespace"));
    let searched = text(query, "q");
    let snapshot = state.store.snapshot();
    let kinds: Vec<Value> = snapshot
        .by_kind
        .iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(kind, list)| json!({"kind": kind.as_str(), "group": kind.group(), "count": list.len()}))
        .collect();
    let lists = snapshot
        .by_kind
        .iter()
        .filter(|(of, _)| (kind.is_empty() || of.as_str() == kind) && group.is_none_or(|group| of.group() == group));
    let is_shown = |config: &&Arc<Config>| {
        (namespace.is_empty() || *config.meta.namespace == *namespace)
            && has(
                searched,
                &[&config.meta.name, &config.meta.namespace, config.kind().as_str(), &config.origin.place()],
            )
    };
    let mut all: Vec<&Arc<Config>> = lists.flat_map(|(_, list)| list.iter()).filter(is_shown).collect();
    all.sort_by(|a, b| {
        let key = |c: &Config| (c.kind(), c.meta.namespace.clone(), c.meta.name.clone());
        key(a).cmp(&key(b))
    });
    let mut shown = page(&all, query, |config| row(config));
    shown["kinds"] = kinds.into();
    shown
}

fn row(config: &Config) -> Value {
    json!({
        "kind": config.kind().as_str(), "group": config.kind().group(), "namespace": &*config.meta.namespace,
        "name": &*config.meta.name, "cluster": &*config.origin.cluster, "source": &*config.origin.source,
        "place": config.origin.place(),
    })
}
