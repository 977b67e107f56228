//! `/scopej`: the scopes of the log and their levels, as Istio's ControlZ serves them.
//!
//! A level is changed by programs on this machine only, and never by a web page.

use actix_web::{HttpRequest, HttpResponse, http::StatusCode, web};
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::may_change;
use crate::telemetry::{Scope, log_scopes, scope_level, set_log_levels};

/// A change of a scope; an empty level of the scope `all` takes all changes back.
#[derive(Debug, Deserialize)]
struct Change {
    #[serde(default)]
    output_level: String,
}

fn shown(scope: &Scope) -> Value {
    json!({
        "name": scope.name, "description": scope.description, "output_level": scope.level, "stack_trace_level": "none",
        "log_callers": false,
    })
}

/// `GET /scopej/`: all scopes.
pub(super) async fn all() -> HttpResponse {
    HttpResponse::Ok().json(log_scopes().iter().map(shown).collect::<Value>())
}

/// `GET /scopej/SCOPE`.
pub(super) async fn one(name: web::Path<String>) -> HttpResponse {
    match log_scopes().iter().find(|scope| scope.name == *name) {
        Some(scope) => HttpResponse::Ok().json(shown(scope)),
        None => HttpResponse::BadRequest().body(format!("unknown scope name: {name}\n")),
    }
}

/// `PUT /scopej/SCOPE` with `{"output_level": LEVEL}`: 202 when it is in force.
pub(super) async fn put(request: HttpRequest, name: web::Path<String>, body: web::Bytes) -> HttpResponse {
    if !may_change(&request) {
        return HttpResponse::Forbidden().body("levels are changed from this machine only, and by no web page\n");
    }
    let refused = |text: String| HttpResponse::BadRequest().body(text + "\n");
    let change: Change = match serde_json::from_slice(&body) {
        Ok(change) => change,
        Err(error) => return refused(format!("unable to decode request: {error}")),
    };
    let scopes = if *name == "all" && change.output_level.is_empty() {
        Ok(Vec::new())
    } else {
        scope_level(&format!("{name}:{}", change.output_level)).map(|scope| vec![scope])
    };
    match scopes.and_then(|scopes| set_log_levels(&scopes)) {
        Ok(()) => {
            tracing::warn!(scope = %name, level = change.output_level, "the level of the log was changed");
            HttpResponse::build(StatusCode::ACCEPTED).finish()
        }
        Err(text) => refused(text),
    }
}
