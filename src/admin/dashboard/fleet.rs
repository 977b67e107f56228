//! Connected clients: in sync, behind, or refusing what they are sent; a refusal is traced to its object.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

use super::listing::{Query, has, page, text};
use crate::{
    admin::{
        AdminState,
        standing::{Standing, is_refused, standing, type_state},
    },
    discovery::{Connection, TypeStatus},
    model::ConfigKey,
    xds::{Protocol, ResourceType},
};

/// Refusals that are shown of one client.
const MOST_REFUSALS: usize = 20;

/// Milliseconds since 1970.
pub(super) fn millis(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The page: numbers by standing, and the clients of one page, the worst first.
pub(super) fn fleet(query: &Query, state: &AdminState) -> Value {
    let (wanted, searched) = (text(query, "state"), text(query, "q"));
    let clients = state.xds.connections();
    let mut all: Vec<(Standing, Arc<Connection>)> = clients.into_iter().map(|c| (standing(&c), c)).collect();
    let count = |of: Standing| all.iter().filter(|(standing, _)| *standing == of).count();
    let counts = json!({
        "all": all.len(), "refused": count(Standing::Refused), "behind": count(Standing::Behind),
        "in sync": count(Standing::InSync), "asks for nothing": count(Standing::Idle),
    });
    all.retain(|(standing, connection)| {
        let address = connection.peer.map(|peer| peer.to_string()).unwrap_or_default();
        (wanted.is_empty() || standing.word() == wanted)
            && has(searched, &[&connection.id, &connection.node.namespace, &address])
    });
    all.sort_by(|(a, left), (b, right)| (a, &left.id).cmp(&(b, &right.id)));
    let mut shown = page(&all, query, |(standing, connection)| row(*standing, connection, state));
    shown["counts"] = counts;
    shown
}

fn row(standing: Standing, connection: &Connection, state: &AdminState) -> Value {
    let node = &connection.node;
    let types: Vec<Value> = connection
        .served()
        .iter()
        .map(|kind| (kind, connection.status(kind)))
        .filter(|(_, status)| status.watched)
        .map(|(kind, status)| json!({"type": kind.short(), "state": type_state(&status)}))
        .collect();
    let refusals = if standing == Standing::Refused { refusals(connection, state) } else { Vec::new() };
    json!({
        "id": connection.id,
        "proxy": &*node.id,
        "namespace": &*node.namespace,
        "address": connection.peer.map(|peer| peer.to_string()).unwrap_or_default(),
        "kind": kind_of(connection),
        "protocol": if connection.protocol == Protocol::Delta { "delta" } else { "sotw" },
        "locality": node.locality.label(),
        "version": &*node.metadata.istio_version,
        "connectedAt": millis(connection.connected_at),
        "standing": standing.word(),
        "waitingSince": waiting_since(connection),
        "types": types,
        "refusals": refusals,
        "leftOut": state.xds.omissions_of(connection).len(),
    })
}

/// The kind of a client in a word.
pub(super) fn kind_of(connection: &Connection) -> String {
    if connection.is_proxy() { format!("{:?}", connection.node.node_type).to_lowercase() } else { "reader".to_string() }
}

/// The oldest response that is not answered yet.
fn waiting_since(connection: &Connection) -> Option<u64> {
    let types = connection.served().iter().map(|kind| connection.status(kind)).collect::<Vec<_>>();
    let waits = types.iter().filter(|status| status.answered_at < status.sent_at && !is_refused(status));
    waits.filter_map(|status| status.sent_at).min().map(millis)
}

/// The refusals of a client, each with the object that the refused resource is made from.
pub(super) fn refusals(connection: &Connection, state: &AdminState) -> Vec<Value> {
    let mut found = Vec::new();
    for kind in connection.served().iter() {
        let status = connection.status(kind);
        let traced = |name: &str| located(state, state.xds.origin_of(connection, kind, name));
        for (name, complaint) in &status.held_back {
            found.push(
                json!({"type": kind.short(), "resource": &**name, "message": &**complaint, "object": traced(name)}),
            );
        }
        if status.held_back.is_empty() && !status.last_error.is_empty() {
            let name = named_in(&status.last_error, &status).unwrap_or_default();
            let object = if name.is_empty() { Value::Null } else { traced(&name) };
            found.push(json!({"type": kind.short(), "resource": name, "message": status.last_error, "object": object}));
        }
    }
    found.truncate(MOST_REFUSALS);
    found
}

/// The resource that a complaint names: the longest name of those that were sent.
fn named_in(complaint: &str, status: &TypeStatus) -> Option<String> {
    let sent = status.sent.as_ref()?;
    let named = sent.iter().map(|resource| resource.name()).filter(|name| complaint.contains(&***name));
    named.max_by_key(|name| name.len()).map(ToString::to_string)
}

/// An object by name, with the place that it is written in.
pub(super) fn located(state: &AdminState, key: Option<ConfigKey>) -> Value {
    let Some(key) = key else { return Value::Null };
    let context = state.context();
    let mut configs = context.iter().flat_map(|context| context.inputs.configs.list(key.kind));
    let config = configs.find(|c| c.meta.name == key.name && c.meta.namespace == key.namespace);
    json!({
        "kind": key.kind.as_str(), "group": key.kind.group(), "namespace": &*key.namespace, "name": &*key.name,
        "place": config.map(|config| config.origin.place()),
    })
}

/// The types that a client was sent something of.
pub(super) fn sent_types(connection: &Connection) -> Vec<(ResourceType, TypeStatus)> {
    let types = connection.served().iter().map(|kind| (kind, connection.status(kind)));
    types.filter(|(_, status)| status.watched).collect()
}
