//! The registry's pages: services, endpoints by shard, objects, mesh settings.

use serde_json::{Map, Value, json};

use super::{AdminState, document::shown};
use crate::{model::Registry, proto::to_json};

/// All services, oldest first.
pub(super) fn services(state: &AdminState) -> Value {
    let Some(context) = state.context() else { return json!([]) };
    serde_json::to_value(&*context.inputs.registry.services).unwrap_or_default()
}

/// Endpoints: host → namespace → shards and service accounts.
pub(super) fn endpoint_shards(state: &AdminState) -> Value {
    let Some(context) = state.context() else { return json!({}) };
    let mut hosts: std::collections::BTreeMap<String, Map<String, Value>> = std::collections::BTreeMap::new();
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

/// All effective objects, as documents.
pub(super) fn configs(state: &AdminState) -> Value {
    state.store.snapshot().by_kind.values().flat_map(|list| list.iter()).map(|c| shown(c)).collect()
}

/// The mesh settings in force, defaults filled in.
pub(super) fn mesh(state: &AdminState) -> Value {
    let Some(context) = state.context() else { return Value::Null };
    to_json(&*context.mesh().config).unwrap_or_default()
}

/// Every source as it describes itself; one that holds a mass deletion back says how it is let through.
pub(super) fn sources(state: &AdminState) -> Value {
    let shown = state.sources.iter().map(|source| {
        let report = source.board.read();
        let mut shown = serde_json::to_value(&report).unwrap_or_default();
        if let (Value::Object(fields), false) = (&mut shown, report.held_deletions.is_empty()) {
            fields.insert("confirm_with".to_string(), how_to_confirm(&report.source).into());
        }
        shown
    });
    shown.collect()
}

/// The command that lets through what a source holds back.
pub(super) fn how_to_confirm(source: &str) -> String {
    format!("pilothouse confirm-deletion '{source}'")
}
