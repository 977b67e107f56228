//! The HTTP server of the admin pages.

use std::{collections::BTreeMap, net::TcpListener};

use actix_web::{
    App, Error, HttpRequest, HttpResponse, HttpServer,
    body::MessageBody,
    dev::{Server, ServerHandle, ServiceRequest, ServiceResponse},
    http::{
        StatusCode,
        header::{self, ContentType, HeaderValue},
    },
    middleware::{Next, from_fn},
    web,
};
use serde_json::{Value, json};

use super::{
    AdminState,
    access::{Viewer, guarded, may_change},
    building::Busy,
    confirm::confirm,
    dashboard, measures, page, pages, parts, scopes,
};

/// Threads that answer. Slow pages are built elsewhere.
const WORKERS: usize = 2;

/// Parameters of a query.
type Query = web::Query<BTreeMap<String, String>>;

/// A running admin server.
pub struct AdminServer {
    /// The server as a future, which ends when it is stopped.
    pub server: Server,
    /// Handle that stops the server.
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
            .wrap(from_fn(described))
            .app_data(web::Data::new(state.clone()))
            .route("/ready", web::get().to(ready))
            .route("/ready", web::head().to(ready))
            .route("/healthz", web::get().to(HttpResponse::Ok))
            .route("/healthz", web::head().to(HttpResponse::Ok))
            .route("/metrics", web::get().to(metrics))
            .route("/metrics", web::head().to(metrics))
            .route("/version", web::get().to(version))
            // istioctl asks a pod for it so.
            .route("//version", web::get().to(version))
            .configure(dashboard::configure)
            .service(
                web::scope("/scopej")
                    .wrap(from_fn(guarded))
                    .route("", web::get().to(scopes::all))
                    .route("/", web::get().to(scopes::all))
                    .route("/{scope}", web::get().to(scopes::one))
                    .route("/{scope}", web::put().to(scopes::put)),
            )
            .service(
                web::scope("/debug")
                    .wrap(from_fn(guarded))
                    .route("", web::get().to(|| async { html(page::index()) }))
                    .route("/list", web::get().to(list))
                    .route("/sourcez/confirm", web::post().to(confirm))
                    .route("/adsz", web::post().to(push))
                    .route("/force_disconnect", web::post().to(disconnect))
                    .route("/pprof/{profile:.*}", web::get().to(profiles))
                    .route("/{page}", web::get().to(debug)),
            )
    })
    .workers(WORKERS)
    .disable_signals()
    .shutdown_timeout(2);
    for listener in listeners {
        http = http.listen(listener)?;
    }
    let server = http.run();
    let handle = server.handle();
    Ok(AdminServer { server, handle })
}

/// Gives every answer a content type and headers that keep browsers from guessing one or framing the page.
async fn described<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    let mut response = next.call(request).await?;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    if !headers.contains_key(header::CONTENT_TYPE) {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    }
    Ok(response)
}

fn html(body: String) -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::html()).body(body)
}

fn busy(busy: Busy) -> HttpResponse {
    HttpResponse::ServiceUnavailable().insert_header((header::RETRY_AFTER, "1")).body(format!("{busy}\n"))
}

fn text_of(value: &Value, pretty: bool) -> String {
    let text = if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    text.unwrap_or_else(|error| json!({"error": error.to_string()}).to_string()) + "\n"
}

fn json_text(text: String) -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::json()).body(text)
}

async fn ready(state: web::Data<AdminState>) -> HttpResponse {
    if state.is_ready() {
        return HttpResponse::Ok().finish();
    }
    let waiting = state.readiness.waiting_for();
    HttpResponse::ServiceUnavailable().body(format!("waiting for: {}\n", waiting.join(", ")))
}

async fn metrics(state: web::Data<AdminState>) -> HttpResponse {
    let read = state.clone();
    let shown = |text| HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(text);
    state
        .building
        .metrics
        .build(async move { read.metrics.render() + &measures::text(&read) })
        .await
        .map_or_else(busy, shown)
}

/// `VERSION-REVISION-STATUS` in plain text, as `istioctl version` reads it.
async fn version() -> String {
    format!("{}-{}-Clean", env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_NAME"))
}

async fn list() -> HttpResponse {
    json_text(text_of(&page::paths(), true))
}

/// `GET /debug/pprof/PROFILE`, as Go's tools ask for it.
async fn profiles() -> HttpResponse {
    HttpResponse::NotImplemented().content_type(ContentType::json()).body(text_of(&parts::profiles(), true))
}

/// `POST /debug/adsz?push=true`: sends everything again to all proxies.
async fn push(query: Query, state: web::Data<AdminState>) -> HttpResponse {
    if !asks_for_push(&query) {
        return HttpResponse::BadRequest().body("POST /debug/adsz?push=true sends everything again\n");
    }
    if state.xds.current().is_none() {
        return HttpResponse::ServiceUnavailable().finish();
    }
    (state.push)();
    HttpResponse::Ok().body(format!("Pushed to {} servers\n", state.xds.connections().len()))
}

/// `POST /debug/force_disconnect?proxyID=ID`: ends the stream of a proxy, which comes back to this or another replica.
async fn disconnect(request: HttpRequest, query: Query, state: web::Data<AdminState>) -> HttpResponse {
    if !may_change(&request) {
        return HttpResponse::Forbidden().body("streams are ended from this machine only, and by no web page\n");
    }
    match query.get("proxyID").and_then(|id| state.xds.connection(id)) {
        Some(connection) => {
            tracing::warn!(connection = connection.id, "the stream is ended on request");
            connection.disconnect();
            HttpResponse::Ok().body("OK")
        }
        None => HttpResponse::NotFound().body("Proxy not connected to this Pilot instance.\n"),
    }
}

fn asks_for_push(query: &Query) -> bool {
    query.get("push").is_some_and(|p| p == "true")
}

async fn debug(
    path: web::Path<String>,
    query: Query,
    viewer: web::ReqData<Viewer>,
    state: web::Data<AdminState>,
) -> HttpResponse {
    if *path == "adsz" && asks_for_push(&query) {
        let text = "a push has an effect on every proxy: ask for it with POST\n";
        return HttpResponse::MethodNotAllowed().insert_header((header::ALLOW, "POST")).body(text);
    }
    let (read, pretty) = (state.clone(), query.contains_key("pretty"));
    let page = async move {
        let value = pages::page_of(&path, &query, viewer.limit(), &read).await?;
        Ok::<_, (StatusCode, String)>(text_of(&value, pretty))
    };
    match state.building.pages.build(page).await {
        Ok(Ok(text)) => json_text(text),
        Ok(Err((status, text))) => HttpResponse::build(status).body(text),
        Err(full) => busy(full),
    }
}
