//! Sources: their lag, refused documents, deletions held back, and the button that lets one through.
//!
//! The button's request is taken from this machine only, and of all web pages from this one: see `access`.

use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::{Value, json};

use super::listing::Query;
use crate::admin::{AdminState, access::may_change, confirm::let_through, registry};

/// Findings of a source that are shown of each sort; the numbers are those of all.
const MOST: usize = 100;
/// Keys of a held deletion that are shown.
const MOST_KEYS: usize = 200;

/// The page.
pub(super) async fn sources(may_confirm: bool, state: &AdminState) -> Value {
    let mut all = registry::sources(state).await;
    for source in all.as_array_mut().into_iter().flatten() {
        shorten(source);
    }
    json!({"sources": all, "mayConfirm": may_confirm, "clusters": state.sources.remotes().statuses()})
}

/// Cuts the lists of a source, each with its full number.
fn shorten(source: &mut Value) {
    let mut counts = serde_json::Map::new();
    for (path, most) in [
        ("/findings/refused", MOST),
        ("/findings/warned", MOST),
        ("/findings/skipped", MOST),
        ("/findings/ignored", MOST),
        ("/held_deletions", MOST_KEYS),
        ("/kept", MOST_KEYS),
        ("/shadowed", MOST),
    ] {
        let name = path.rsplit('/').next().unwrap_or_default();
        let more = source.pointer(&format!("/findings/more/{name}")).and_then(Value::as_u64).unwrap_or_default();
        if let Some(Value::Array(list)) = source.pointer_mut(path) {
            counts.insert(name.to_string(), json!(list.len() as u64 + more));
            list.truncate(most);
        }
    }
    source["counts"] = counts.into();
}

/// `POST /dashboard/api/confirm?source=NAME`.
pub(super) async fn confirm(
    request: HttpRequest,
    query: web::Query<Query>,
    state: web::Data<AdminState>,
) -> HttpResponse {
    if !may_change(&request) {
        return HttpResponse::Forbidden().body("a deletion is confirmed from this machine only\n");
    }
    let_through(&query, &state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut_and_counted() {
        let keys: Vec<String> = (0..MOST_KEYS + 5).map(|n| n.to_string()).collect();
        let mut source = json!({"held_deletions": keys, "findings": {"refused": [1, 2], "more": {"refused": 40}}});
        shorten(&mut source);
        assert_eq!(source["held_deletions"].as_array().map(Vec::len), Some(MOST_KEYS));
        assert_eq!(source["counts"], json!({"refused": 42, "held_deletions": MOST_KEYS + 5}));
    }
}
