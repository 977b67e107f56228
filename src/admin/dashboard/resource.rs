//! The resources of one client: a page of a type, and one of them with its difference from now.

use std::sync::Arc;

use serde_json::{Value, json};
use similar::TextDiff;

use super::{
    fleet::located,
    listing::{Query, has, page, text},
    refusal::{Refusal, missing},
    summary,
};
use crate::{
    admin::{AdminState, envoy_dump::redacted},
    discovery::Connection,
    xds::{Resource, ResourceType},
};

/// Encoded bytes of a resource that is read for its line.
const MOST_OF_LINE: usize = 64 << 10;
/// Bytes of a text that is shown.
const MOST_OF_TEXT: usize = 256 << 10;
/// Lines around each difference.
const CONTEXT: usize = 3;

/// The client and the type that a question is about.
fn asked(query: &Query, state: &AdminState) -> Result<(Arc<Connection>, ResourceType), Refusal> {
    let connection = client(query, state)?;
    let wanted = text(query, "type");
    let kind = connection.served().iter().find(|kind| kind.short() == wanted || kind.label() == wanted);
    kind.map(|kind| (connection, kind)).ok_or_else(|| missing(&format!("the client is sent no type {wanted:?}")))
}

/// The client that a question is about.
pub(super) fn client(query: &Query, state: &AdminState) -> Result<Arc<Connection>, Refusal> {
    let id = text(query, "id");
    state.xds.connection(id).ok_or_else(|| missing(&format!("{id:?} is not connected to this server")))
}

/// The resources of a type.
pub(super) fn resources(query: &Query, state: &AdminState) -> Result<Value, Refusal> {
    let (connection, kind) = asked(query, state)?;
    let searched = text(query, "q");
    let sent = connection.status(kind).sent;
    let all = sent.iter().flat_map(|snapshot| snapshot.iter()).filter(|resource| has(searched, &[resource.name()]));
    let mut all: Vec<&Arc<Resource>> = all.collect();
    all.sort_by(|a, b| a.name().cmp(b.name()));
    Ok(page(&all, query, |resource| row(kind, resource, &connection, state)))
}

fn row(kind: ResourceType, resource: &Resource, connection: &Connection, state: &AdminState) -> Value {
    let is_small = resource.any().len() <= MOST_OF_LINE;
    let line = if is_small { summary::line(kind, &redacted(kind, resource)) } else { String::new() };
    json!({
        "name": &**resource.name(), "version": resource.version(), "bytes": resource.any().len(), "line": line,
        "origin": located(state, state.xds.origin_of(connection, kind, resource.name())),
        "objects": summary::objects(resource.any()),
    })
}

/// One resource: its text, and the difference between what the client was sent and what it would be sent now.
pub(super) async fn resource(query: &Query, state: &AdminState) -> Result<Value, Refusal> {
    let (connection, kind) = asked(query, state)?;
    let name = text(query, "name");
    let sent = connection.status(kind).sent.and_then(|snapshot| snapshot.get(name).cloned());
    let now = state.xds.newest(&connection, kind).await.and_then(|snapshot| snapshot.get(name).cloned());
    let Some(shown) = sent.as_ref().or(now.as_ref()) else {
        return Err(missing(&format!("the client was sent no {} {name:?}", kind.short())));
    };
    let pretty = |resource: &Arc<Resource>| {
        let mut content = redacted(kind, resource);
        content.sort_all_objects();
        serde_json::to_string_pretty(&content).unwrap_or_default() + "\n"
    };
    let same = sent.as_ref().map(|r| r.hash()) == now.as_ref().map(|r| r.hash());
    let text = pretty(shown);
    let difference = (!same).then(|| {
        let [sent, now] = [&sent, &now].map(|of| of.as_ref().map(pretty).unwrap_or_default());
        let lines = TextDiff::from_lines(&sent, &now);
        cut(lines.unified_diff().context_radius(CONTEXT).header("sent", "now").to_string())
    });
    Ok(json!({
        "name": name, "type": kind.short(), "version": shown.version(), "bytes": shown.any().len(),
        "wasSent": sent.is_some(), "isThere": now.is_some(), "difference": difference,
        "wholeText": text.len(), "text": cut(text),
        "origin": located(state, state.xds.origin_of(&connection, kind, name)),
        "objects": summary::objects(shown.any()),
    }))
}

/// The text up to its bound.
fn cut(mut text: String) -> String {
    if text.len() > MOST_OF_TEXT {
        let end = (0..=MOST_OF_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        text.truncate(end);
        text.push_str("\n…\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("é".to_string()), "é");
        let long = cut("é".repeat(MOST_OF_TEXT));
        assert!(long.len() < MOST_OF_TEXT + 10 && long.ends_with("é\n…\n"));
    }
}
