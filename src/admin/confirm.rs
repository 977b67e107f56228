//! `POST /debug/sourcez/confirm?source=NAME`: lets through a mass deletion that a source holds back.
//!
//! The one page that changes config. It accepts requests of programs on this machine only, also when the debug pages are
//! open, and of no web page but the dashboard, which has a question of its own for it.

use std::collections::BTreeMap;

use actix_web::{HttpRequest, HttpResponse, web};

use super::{AdminState, access::may_change};

/// 200 with the deleted keys, 404 for a source that does not exist, 409 for one that holds nothing back.
pub(super) async fn confirm(
    request: HttpRequest,
    query: web::Query<BTreeMap<String, String>>,
    state: web::Data<AdminState>,
) -> HttpResponse {
    if !may_change(&request) {
        return HttpResponse::Forbidden().body("a deletion is confirmed from this machine only, and by no web page\n");
    }
    let_through(&query, &state)
}

/// Lets the held deletion of a source through, for a caller that may do so.
pub(super) fn let_through(query: &BTreeMap<String, String>, state: &AdminState) -> HttpResponse {
    let wanted = query.get("source").map_or("", String::as_str);
    let sources = state.sources.all();
    let Some(source) = sources.iter().find(|s| *s.id() == *wanted) else {
        let known: Vec<String> = sources.iter().map(|s| s.id().to_string()).collect();
        return HttpResponse::NotFound().body(format!("no source {wanted:?}; there are: {}\n", known.join(", ")));
    };
    let held = source.confirm_deletion();
    if held.is_empty() {
        return HttpResponse::Conflict().body(format!("{wanted} holds no deletion back\n"));
    }
    tracing::warn!(source = wanted, objects = held.len(), "mass deletion confirmed");
    HttpResponse::Ok().body(format!("{} objects of {wanted} are deleted:\n{}\n", held.len(), held.join("\n")))
}
