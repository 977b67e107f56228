//! The debug pages by their names.

use std::{collections::BTreeMap, sync::Arc};

use actix_web::http::StatusCode;
use serde_json::{Value, json};

use super::{AdminState, analysis, cache, describe, envoy_dump, flags, parts, proxies, registry};
use crate::{
    discovery::{Connection, debug::DebugAudience},
    store::Shadowed,
    xds::ResourceType,
};

/// A debug page, or the status and the text of a refusal. A caller with a `limit` sees proxies of that namespace alone.
pub(super) async fn page_of(
    path: &str,
    query: &BTreeMap<String, String>,
    limit: Option<&str>,
    state: &AdminState,
) -> Result<Value, (StatusCode, String)> {
    if !DebugAudience::may_ask(limit, path) {
        return Err((StatusCode::FORBIDDEN, "this page is for the root namespace only\n".to_string()));
    }
    Ok(match path {
        "adsz" => proxies::adsz(state),
        "syncz" => proxies::syncz(state, query.get("namespace").map(String::as_str)),
        "connections" => proxies::connections(state),
        "push_status" => proxies::push_status(state),
        "configz" => registry::configs(state, query.get("kind").map(String::as_str)).await,
        "registryz" => registry::services(state),
        "endpointShardz" | "endpointz" => registry::endpoint_shards(state),
        "mesh" => registry::mesh(state),
        "clusterz" => json!(state.sources.remotes().statuses()),
        "sourcez" => registry::sources(state).await,
        "queuez" => json!(state.supervision.reports()),
        "flagz" => flags::page(state),
        "eventz" => json!(state.xds.events()),
        "cachez" => return cache::page(query, state),
        "mcsz" => json!([]),
        "pprof" => parts::profiles(),
        "list" => super::page::paths(),
        "viewz" => {
            let (builds, resources) = state.xds.build_counts();
            json!({"views": state.xds.views(), "builds": builds, "resources": resources})
        }
        "loadz" => json!(state.xds.reported_loads()),
        "shadowz" => shadowed(state).await,
        "leaderz" => state.status.leader().await,
        "analysisz" => analysis::messages(state).await,
        "statusz" => json!(state.status.statuses().await),
        "authorizationz" => parts::authorization(state),
        "telemetryz" => parts::telemetry(state),
        "networkz" => parts::networks(state),
        "pushcontext" => parts::push_context(state),
        "resourcesz" => parts::kinds(),
        "instancesz" => parts::instances(state),
        "describez" => return describe::page(query, state),
        "edsz" | "ndsz" | "ecdsz" | "sidecarz" | "config_dump" => return of_proxy(path, query, limit, state),
        unknown => {
            return Err((
                StatusCode::NOT_FOUND,
                format!("404 page not found: {unknown:?}; GET /debug lists the pages\n"),
            ));
        }
    })
}

async fn shadowed(state: &AdminState) -> Value {
    let all = state.store.shadowed().await;
    let shown = |s: &Shadowed| {
        json!({"key": s.key.to_string(), "winner": &*s.winner, "winner_place": s.winner_place,
            "shadowed": &*s.loser, "shadowed_place": s.loser_place})
    };
    all.iter().map(shown).collect()
}

fn of_proxy(
    page: &str,
    query: &BTreeMap<String, String>,
    limit: Option<&str>,
    state: &AdminState,
) -> Result<Value, (StatusCode, String)> {
    let refusal = |status, text: &str| (status, format!("{text}\n"));
    let id = query
        .get("proxyID")
        .ok_or_else(|| refusal(StatusCode::BAD_REQUEST, "You must provide a proxyID in the query string"))?;
    let unknown = "Proxy not connected to this Pilot instance. It may be connected to another instance.";
    let is_shown =
        |connection: &Arc<Connection>| limit.is_none_or(|namespace| *connection.node.namespace == *namespace);
    let connection =
        state.xds.connection(id).filter(is_shown).ok_or_else(|| refusal(StatusCode::NOT_FOUND, unknown))?;
    Ok(if page == "sidecarz" { parts::scope(state, &connection) } else { dump(page, query, &connection) })
}

fn dump(page: &str, query: &BTreeMap<String, String>, connection: &Connection) -> Value {
    match page {
        "edsz" => proxies::sent(connection, ResourceType::Endpoint),
        "ecdsz" => proxies::sent(connection, ResourceType::Extension),
        "ndsz" => proxies::sent(connection, ResourceType::NameTable),
        _ => {
            let types: Vec<&str> =
                query.get("types").map(|t| t.split(',').map(str::trim).collect()).unwrap_or_default();
            envoy_dump::dump(connection, &types, query.get("resource").map(String::as_str))
        }
    }
}
