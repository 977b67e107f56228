//! The HTTP server of the admin pages.

use std::{collections::BTreeMap, net::TcpListener};

use actix_web::{
    App, Error, HttpRequest, HttpResponse, HttpServer,
    body::MessageBody,
    dev::{Server, ServerHandle, ServiceRequest, ServiceResponse},
    http::{StatusCode, header::ContentType},
    middleware::{Next, from_fn},
    web,
};
use serde_json::{Value, json};

use super::{AdminState, confirm::confirm, envoy_dump, page, proxies, registry};
use crate::{
    model::Reason,
    store::Shadowed,
    xds::{Connection, ResourceType},
};

/// Parameters of a query.
type Query = web::Query<BTreeMap<String, String>>;

/// A running admin server.
pub struct AdminServer {
    /// Runs until it is stopped.
    pub server: Server,
    /// Stops it.
    pub handle: ServerHandle,
}

impl std::fmt::Debug for AdminServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminServer").finish_non_exhaustive()
    }
}

/// Serves the pages on these sockets. Signals are left to the process.
///
/// # Errors
/// A socket that cannot be served.
pub fn serve(listeners: Vec<TcpListener>, state: AdminState) -> std::io::Result<AdminServer> {
    let mut http = HttpServer::new(move || {
        App::new()
            .app_data(web::Data::new(state.clone()))
            .route("/", web::get().to(overview))
            .route("/ready", web::get().to(ready))
            .route("/healthz", web::get().to(|| async { HttpResponse::Ok().finish() }))
            .route("/metrics", web::get().to(metrics))
            .route("/version", web::get().to(version))
            .service(
                web::scope("/debug")
                    .wrap(from_fn(loopback_only))
                    .route("", web::get().to(|| async { html(page::index()) }))
                    .route("/list", web::get().to(list))
                    .route("/sourcez/confirm", web::post().to(confirm))
                    .route("/{page}", web::get().to(debug)),
            )
    })
    .workers(1)
    .disable_signals()
    .shutdown_timeout(2);
    for listener in listeners {
        http = http.listen(listener)?;
    }
    let server = http.run();
    let handle = server.handle();
    Ok(AdminServer { server, handle })
}

async fn loopback_only<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<actix_web::body::EitherBody<B>>, Error> {
    let open = request.app_data::<web::Data<AdminState>>().is_some_and(|s| s.open_debug);
    let local = request.peer_addr().is_some_and(|a| a.ip().to_canonical().is_loopback());
    if !open && !local {
        let text = "debug pages answer on the loopback interface only; --open-debug opens them\n";
        return Ok(request.into_response(HttpResponse::Forbidden().body(text)).map_into_right_body());
    }
    Ok(next.call(request).await?.map_into_left_body())
}

fn html(body: String) -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::html()).body(body)
}

fn answer(value: &Value, pretty: bool) -> HttpResponse {
    let text = if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    match text {
        Ok(text) => HttpResponse::Ok().content_type(ContentType::json()).body(text + "\n"),
        Err(error) => HttpResponse::InternalServerError().body(error.to_string()),
    }
}

async fn overview(request: HttpRequest, state: web::Data<AdminState>) -> HttpResponse {
    let local = request.peer_addr().is_some_and(|a| a.ip().to_canonical().is_loopback());
    if !local && !state.open_debug {
        return HttpResponse::Forbidden().body("the overview answers on the loopback interface only\n");
    }
    html(page::overview(&state))
}

async fn ready(state: web::Data<AdminState>) -> HttpResponse {
    if state.is_ready() {
        return HttpResponse::Ok().finish();
    }
    let waiting = state.readiness.waiting_for();
    HttpResponse::ServiceUnavailable().body(format!("waiting for: {}\n", waiting.join(", ")))
}

async fn metrics(state: web::Data<AdminState>) -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(state.metrics.render())
}

async fn version() -> HttpResponse {
    answer(&json!({"product": "pilothouse", "version": env!("CARGO_PKG_VERSION")}), false)
}

async fn list() -> HttpResponse {
    let paths: Vec<String> = page::DEBUG_PAGES.iter().map(|(p, _)| format!("/debug/{p}")).collect();
    answer(&json!(paths), true)
}

async fn debug(path: web::Path<String>, query: Query, state: web::Data<AdminState>) -> HttpResponse {
    if *path == "adsz" && query.get("push").is_some_and(|p| p == "true") {
        let Some(current) = state.xds.current() else { return HttpResponse::ServiceUnavailable().finish() };
        let request = crate::model::PushRequest::everything(Reason::Debug);
        state.xds.publish(current.context.clone(), &request);
        return HttpResponse::Ok().body(format!("Pushed to {} servers\n", state.xds.connections().len()));
    }
    match page_of(&path, &query, &state).await {
        Ok(value) => answer(&value, query.contains_key("pretty")),
        Err((status, text)) => HttpResponse::build(status).body(text),
    }
}

/// A debug page, or the status and the text of a refusal.
pub(super) async fn page_of(
    path: &str,
    query: &BTreeMap<String, String>,
    state: &AdminState,
) -> Result<Value, (StatusCode, String)> {
    Ok(match path {
        "adsz" => proxies::adsz(state),
        "syncz" => proxies::syncz(state, query.get("namespace").map(String::as_str)),
        "connections" => proxies::connections(state),
        "push_status" => proxies::push_status(state),
        "configz" => registry::configs(state).await,
        "registryz" => registry::services(state),
        "endpointShardz" | "endpointz" => registry::endpoint_shards(state),
        "mesh" => registry::mesh(state),
        "sourcez" => registry::sources(state).await,
        "queuez" => json!(state.wards.reports()),
        "eventz" => json!(state.xds.events()),
        "viewz" => {
            let (builds, resources) = state.xds.build_counts();
            json!({"views": state.xds.views(), "builds": builds, "resources": resources})
        }
        "loadz" => json!(state.xds.reported_loads()),
        "shadowz" => shadowed(state).await,
        "leaderz" => state.status.leader().await,
        "statusz" => json!(state.status.statuses().await),
        "edsz" | "ndsz" | "config_dump" => return of_proxy(path, query, state),
        unknown => {
            return Err((StatusCode::NOT_FOUND, format!("no debug page {unknown:?}; GET /debug lists them\n")));
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

fn of_proxy(page: &str, query: &BTreeMap<String, String>, state: &AdminState) -> Result<Value, (StatusCode, String)> {
    let refusal = |status, text: &str| (status, format!("{text}\n"));
    let id = query
        .get("proxyID")
        .ok_or_else(|| refusal(StatusCode::BAD_REQUEST, "You must provide a proxyID in the query string"))?;
    let unknown = "Proxy not connected to this Pilot instance. It may be connected to another instance.";
    let connection = state.xds.connection(id).ok_or_else(|| refusal(StatusCode::NOT_FOUND, unknown))?;
    Ok(dump(page, query, &connection))
}

fn dump(page: &str, query: &BTreeMap<String, String>, connection: &Connection) -> Value {
    match page {
        "edsz" => proxies::sent(connection, ResourceType::Endpoint),
        "ndsz" => proxies::sent(connection, ResourceType::NameTable),
        _ => {
            let types: Vec<&str> =
                query.get("types").map(|t| t.split(',').map(str::trim).collect()).unwrap_or_default();
            envoy_dump::dump(connection, &types, query.get("resource").map(String::as_str))
        }
    }
}
