//! One client: its standing by type, what it refuses or is not sent, its services and policies, and the difference between what
//! it was sent and what it would be sent now.

use serde_json::{Value, json};

use super::{
    fleet::{kind_of, located, millis, refusals, sent_types},
    listing::Query,
    refusal::Refusal,
    resource::client,
};
use crate::{
    admin::{
        AdminState,
        describe::workload,
        proxies,
        standing::{standing, type_state},
    },
    discovery::{Connection, TypeStatus},
    xds::{Protocol, ResourceType, Snapshot},
};

/// Names of a difference that are shown.
const MOST: usize = 20;

pub(super) async fn proxy(query: &Query, state: &AdminState) -> Result<Value, Refusal> {
    let connection = client(query, state)?;
    let node = &connection.node;
    let mut types = Vec::new();
    for (kind, status) in sent_types(&connection) {
        types.push(of_type(kind, &status, &connection, state).await);
    }
    let left_out: Vec<Value> = state
        .xds
        .omissions_of(&connection)
        .into_iter()
        .map(|omission| {
            let object = located(state, omission.object);
            json!({"resource": omission.resource, "message": omission.message, "object": object})
        })
        .collect();
    let described = state.context().filter(|_| connection.is_proxy());
    Ok(json!({
        "id": connection.id, "proxy": &*node.id, "kind": kind_of(&connection), "namespace": &*node.namespace,
        "address": connection.peer.map(|peer| peer.to_string()).unwrap_or_default(),
        "protocol": if connection.protocol == Protocol::Delta { "delta" } else { "sotw" },
        "identity": connection.identity.as_ref().map(ToString::to_string), "isProven": connection.is_proven,
        "locality": node.locality.label(), "version": &*node.metadata.istio_version, "labels": node.labels,
        "connectedAt": millis(connection.connected_at), "standing": standing(&connection).word(),
        "view": format!("{:032x}", connection.view_key()), "types": types, "refusals": refusals(&connection, state),
        "leftOut": left_out,
        "described": described.map(|context| workload::describe(&context, node, true)),
    }))
}

async fn of_type(kind: ResourceType, status: &TypeStatus, connection: &Connection, state: &AdminState) -> Value {
    let now = state.xds.newest(connection, kind).await;
    let difference = status.sent.as_ref().zip(now.as_ref()).map(|(sent, now)| difference(sent, now));
    json!({
        "type": kind.short(), "state": type_state(status), "resources": status.sent.as_ref().map_or(0, |sent| sent.len()),
        "bytes": status.last_size.1, "sentAt": status.sent_at.map(millis), "answeredAt": status.answered_at.map(millis),
        "rejects": status.rejects, "missing": proxies::missing(status), "difference": difference,
    })
}

/// The names that differ between what was sent and what would be sent now; `null` where nothing does.
fn difference(sent: &Snapshot, now: &Snapshot) -> Value {
    if sent.digest() == now.digest() {
        return Value::Null;
    }
    let (mut added, mut changed, mut removed) = (Vec::new(), Vec::new(), Vec::new());
    for resource in now.iter() {
        match sent.get(resource.name()) {
            None => added.push(&**resource.name()),
            Some(before) if before.hash() != resource.hash() => changed.push(&**resource.name()),
            Some(_) => {}
        }
    }
    removed.extend(sent.iter().map(|resource| &**resource.name()).filter(|name| now.get(name).is_none()));
    if added.is_empty() && changed.is_empty() && removed.is_empty() {
        return Value::Null;
    }
    let shown = |names: &[&str]| json!({"total": names.len(), "names": names.iter().take(MOST).collect::<Vec<_>>()});
    json!({"added": shown(&added), "changed": shown(&changed), "removed": shown(&removed)})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::{Block, Resource, Scope};
    use std::sync::Arc;

    #[test]
    fn the_difference_is_by_name_and_content() {
        let of = |resources: &[(&str, &[u8])]| {
            let all = resources.iter().map(|(name, value)| Arc::new(Resource::of_parts(*name, "t", value)));
            Snapshot::new(vec![Block::build(all, None)], Scope::all())
        };
        let sent = of(&[("a", b"1"), ("b", b"1"), ("c", b"1")]);
        assert_eq!(difference(&sent, &of(&[("a", b"1"), ("b", b"1"), ("c", b"1")])), Value::Null);
        let found = difference(&sent, &of(&[("a", b"1"), ("b", b"2"), ("d", b"1")]));
        assert_eq!(found["added"]["names"], json!(["d"]));
        assert_eq!(found["changed"]["names"], json!(["b"]));
        assert_eq!(found["removed"]["names"], json!(["c"]));
    }
}
