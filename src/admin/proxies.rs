//! The pages about connected proxies.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{AdminState, envoy_dump};
use crate::{
    discovery::{Connection, Omission, TypeStatus},
    xds::{Protocol, ResourceType},
};

fn time(at: SystemTime) -> Value {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_second(since.as_secs() as i64).map_or(Value::Null, |t| Value::from(t.to_string()))
}

fn peer(connection: &Connection) -> String {
    connection.peer.map(|p| p.to_string()).unwrap_or_default()
}

/// Connections and the resources that they watch (`/debug/adsz`).
pub(super) fn adsz(state: &AdminState) -> Value {
    let clients: Vec<Value> = state.xds.connections().iter().map(|c| {
        let node = &c.node;
        let (mut watches, mut refused) = (Map::new(), Vec::new());
        for kind in c.served().iter() {
            let status = c.status(kind);
            let entry = |(name, complaint): &(Arc<str>, Arc<str>)| {
                json!({"type": kind.label(), "resource": &**name, "message": &**complaint})
            };
            refused.extend(status.held_back.iter().map(entry));
            if status.watched {
                let names = status.names.iter().flat_map(|n| n.names()).map(|n| Value::from(&**n));
                let all = status.wildcard.then(|| Value::from("*"));
                watches.insert(kind.label().to_string(), all.into_iter().chain(names).collect());
            }
        }
        json!({
            "connectionId": c.id,
            "connectedAt": time(c.connected_at),
            "address": peer(c),
            "protocol": if c.protocol == Protocol::Delta { "delta" } else { "sotw" },
            "labels": node.labels,
            "metadata": node.raw_metadata,
            "locality": {"region": &*node.locality.region, "zone": &*node.locality.zone, "subZone": &*node.locality.subzone},
            "view": format!("{:032x}", c.view_key()),
            "watches": watches,
            "leftOut": state.xds.omissions_of(c).iter().map(left_out).collect::<Vec<_>>(),
            "refused": refused,
        })
    }).collect();
    json!({"totalClients": clients.len(), "clients": clients})
}

/// Something that a proxy is not sent, or cannot use.
fn left_out(omission: &Omission) -> Value {
    let mut entry = json!({"resource": omission.resource, "message": omission.message});
    if let Some(object) = &omission.object {
        entry["object"] = object.to_string().into();
    }
    entry
}

/// The versions that each proxy was sent and has accepted (`/debug/syncz`).
pub(super) fn syncz(state: &AdminState, namespace: Option<&str>) -> Value {
    let of_namespace = |c: &&std::sync::Arc<Connection>| namespace.is_none_or(|n| n == &*c.node.namespace);
    state
        .xds
        .connections()
        .iter()
        .filter(of_namespace)
        .map(|c| {
            let node = &c.node;
            let mut row = Map::new();
            for (key, value) in [
                ("cluster_id", node.cluster_id.to_string()),
                ("proxy", node.id.to_string()),
                ("connection_id", c.id.clone()),
                ("address", peer(c)),
                ("proxy_type", format!("{:?}", node.node_type).to_lowercase()),
                ("proxy_version", node.metadata.istio_version.to_string()),
                ("istio_version", node.metadata.istio_version.to_string()),
            ] {
                row.insert(key.to_string(), value.into());
            }
            let mut resources = BTreeMap::new();
            for (kind, long) in [
                (ResourceType::Cluster, "cluster"),
                (ResourceType::Listener, "listener"),
                (ResourceType::Route, "route"),
                (ResourceType::Endpoint, "endpoint"),
                (ResourceType::Extension, "extensionconfig"),
            ] {
                let status = c.status(kind);
                row.insert(format!("{long}_sent"), status.sent_nonce.clone().into());
                row.insert(format!("{long}_acked"), status.acked_nonce.clone().into());
                if status.watched {
                    resources.insert(
                        kind.label(),
                        json!({
                            "sent": status.sent_nonce, "acked": status.acked_nonce, "lastError": status.last_error,
                            "sentTime": status.sent_at.map_or(Value::Null, time), "rejects": status.rejects,
                            "missing": missing(&status),
                        }),
                    );
                }
            }
            row.insert("resources".to_string(), json!(resources));
            Value::Object(row)
        })
        .collect()
}

/// Names that a client watches and that do not exist: the first few.
pub(super) fn missing(status: &TypeStatus) -> Vec<String> {
    const SHOWN: usize = 20;
    let Some(sent) = &status.sent else { return Vec::new() };
    let held: HashSet<&str> = sent.iter().map(|r| &**r.name()).collect();
    let asked = status.names.iter().flat_map(|n| n.names());
    asked.map(|name| &**name).filter(|name| !held.contains(name)).take(SHOWN).map(ToString::to_string).collect()
}

/// The open connections (`/debug/connections`).
pub(super) fn connections(state: &AdminState) -> Value {
    let clients: Vec<Value> = state
        .xds
        .connections()
        .iter()
        .map(|c| json!({"connectionId": c.id, "connectedAt": time(c.connected_at), "address": peer(c)}))
        .collect();
    json!({"totalClients": clients.len(), "clients": clients})
}

/// Problems by Istio's metric → listener, secret or proxy → message (`/debug/push_status`): resources that were left out,
/// and the last refusal of each proxy and type.
pub(super) fn push_status(state: &AdminState) -> Value {
    let mut rejected: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
    for c in state.xds.connections() {
        for kind in c.served().iter() {
            let status = c.status(kind);
            if !status.last_error.is_empty() {
                let metric = format!("pilot_xds_{}_reject", kind.label());
                rejected.entry(metric).or_default().insert(c.id.clone(), json!({"message": status.last_error}));
            }
        }
    }
    for omission in state.xds.omissions().into_iter().chain(state.xds.refused_by_clients()) {
        let of_metric = rejected.entry(omission.metric.to_string()).or_default();
        let entry = of_metric.entry(omission.resource).or_insert_with(|| json!({"message": omission.message}));
        if let Some(said) = entry["message"].as_str().filter(|said| !said.contains(&omission.message)) {
            entry["message"] = format!("{said}; {}", omission.message).into();
        }
        if let Some(object) = omission.object {
            let object = Value::from(object.to_string());
            match entry["objects"].as_array_mut() {
                Some(objects) if objects.contains(&object) => {}
                Some(objects) => objects.push(object),
                None => entry["objects"] = json!([object]),
            }
        }
    }
    json!(rejected)
}

/// The resources of one type that a proxy was sent.
pub(super) fn sent(connection: &Connection, kind: ResourceType) -> Value {
    connection.status(kind).sent.map_or(json!([]), |sent| sent.iter().map(|r| envoy_dump::to_json(r)).collect())
}
