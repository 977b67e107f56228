//! The registry's pages: services, endpoints by shard, objects, mesh settings.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Map, Value, json};

use super::{AdminState, document::shown};
use crate::{
    model::{Config, Registry},
    proto::to_json,
    sources::SourceId,
    store::StoreKey,
};

/// All services, oldest first.
pub(super) fn services(state: &AdminState) -> Value {
    let Some(context) = state.context() else { return json!([]) };
    serde_json::to_value(&*context.inputs.registry.services).unwrap_or_default()
}

/// Endpoints: host → namespace → shards and service accounts.
pub(super) fn endpoint_shards(state: &AdminState) -> Value {
    let Some(context) = state.context() else { return json!({}) };
    let mut hosts: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for service in context.inputs.registry.services.iter() {
        let Some(set) = context.endpoints().get(&service.hostname, &service.namespace) else { continue };
        let mut shards = Map::new();
        for (key, endpoints) in &set.shards {
            let provider = match key.provider {
                Registry::Kubernetes => "Kubernetes",
                Registry::External => "External",
                Registry::Mock => "Mock",
                Registry::None => "None",
            };
            let list = serde_json::to_value(endpoints.iter().map(|e| &**e).collect::<Vec<_>>()).unwrap_or_default();
            shards.insert(format!("{provider}/{}", key.cluster), list);
        }
        let entry = json!({"Shards": shards, "ServiceAccounts": set.service_accounts});
        hosts.entry(service.hostname.to_string()).or_default().insert(service.namespace.to_string(), entry);
    }
    json!(hosts)
}

/// All effective objects, as documents. One that hides objects of other sources carries the places of both.
pub(super) async fn configs(state: &AdminState, kind: Option<&str>) -> Value {
    let mut hidden: BTreeMap<StoreKey, Vec<Value>> = BTreeMap::new();
    for s in state.store.shadowed().await {
        hidden.entry(s.key).or_default().push(json!({"source": &*s.loser, "place": s.loser_place}));
    }
    let with_places = |config: &Arc<Config>| {
        let mut document = shown(config);
        if let (Some(hidden), Value::Object(fields)) = (hidden.get(&StoreKey::of(config)), &mut document) {
            let origin = &config.origin;
            fields.insert("source".to_string(), json!({"source": &*origin.source, "place": origin.place()}));
            fields.insert("shadows".to_string(), hidden.clone().into());
        }
        document
    };
    let snapshot = state.store.snapshot();
    let lists = snapshot.by_kind.iter().filter(|(of, _)| kind.is_none_or(|kind| of.as_str() == kind));
    lists.flat_map(|(_, list)| list.iter()).map(with_places).collect()
}

/// The mesh settings in force, defaults filled in.
pub(super) fn mesh(state: &AdminState) -> Value {
    let Some(context) = state.context() else { return Value::Null };
    to_json(&*context.mesh().config).unwrap_or_default()
}

/// Every source's own description, with its objects that another source hides; one that holds a mass deletion back names the
/// command that lets it through.
pub(super) async fn sources(state: &AdminState) -> Value {
    let mut hidden: BTreeMap<SourceId, Vec<Value>> = BTreeMap::new();
    for s in state.store.shadowed().await {
        let by = json!({"source": &*s.winner, "place": s.winner_place});
        let shown = json!({"key": s.key.to_string(), "place": s.loser_place, "by": by});
        hidden.entry(s.loser).or_default().push(shown);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let sources = state.sources.all();
    let shown = sources.iter().map(|source| {
        let report = source.board.read();
        let mut shown = serde_json::to_value(&report).unwrap_or_default();
        if let (Value::Object(fields), false) = (&mut shown, report.held_deletions.is_empty()) {
            fields.insert("confirm_with".to_string(), how_to_confirm(&report.source).into());
        }
        if let (Value::Object(fields), Some(saved_at)) = (&mut shown, report.saved_at) {
            fields.insert("age_seconds".to_string(), now.saturating_sub(saved_at).into());
        }
        if let (Value::Object(fields), Some(hidden)) = (&mut shown, hidden.remove(&report.source)) {
            fields.insert("shadowed".to_string(), hidden.into());
        }
        shown
    });
    shown.collect()
}

/// The command that lets the held deletion of a source through.
pub(super) fn how_to_confirm(source: &str) -> String {
    format!("pilothouse confirm-deletion '{}'", source.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_one_word_of_a_shell_after_another() {
        assert_eq!(how_to_confirm("file:/etc/mesh"), "pilothouse confirm-deletion 'file:/etc/mesh'");
        assert_eq!(how_to_confirm("file:/a'; rm b"), r"pilothouse confirm-deletion 'file:/a'\''; rm b'");
    }
}
