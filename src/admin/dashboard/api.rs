//! The questions of the page, by name.

use std::sync::Arc;

use actix_web::{
    HttpRequest, HttpResponse,
    http::{StatusCode, header},
    web,
};
use serde_json::Value;

use super::{
    analysis, fleet, graph,
    listing::{Query, text},
    object, objects, overview, proxy, pushes,
    refusal::Refusal,
    resource, service, sources,
};
use crate::admin::{
    AdminState,
    access::{Viewer, may_change},
};

/// `GET /dashboard/api/PAGE`. With `v=`, the number of the notice that the page follows, the answer is shared.
pub(super) async fn answer(
    request: HttpRequest,
    page: web::Path<String>,
    query: web::Query<Query>,
    viewer: web::ReqData<Viewer>,
    state: web::Data<AdminState>,
) -> HttpResponse {
    if viewer.limit().is_some() {
        return HttpResponse::Forbidden().body("the dashboard is for the root namespace only\n");
    }
    let (page, query) = (page.into_inner(), query.into_inner());
    let may_confirm = may_change(&request);
    let question = text(&query, "v").parse::<u64>().ok().map(|_| format!("{page}?{query:?}&{may_confirm}"));
    let answers = &state.dashboard.shared().answers;
    if let Some(known) = question.as_ref().and_then(|question| answers.get(question)) {
        return json_text(known);
    }
    let read = state.clone();
    let work = async move {
        let value = value_of(&page, &query, may_confirm, &read).await?;
        Ok::<Arc<str>, Refusal>(value.to_string().into())
    };
    match state.building.dashboard.build(work).await {
        Ok(Ok(text)) => {
            if let Some(question) = question {
                answers.keep(question, &text);
            }
            json_text(text)
        }
        Ok(Err((status, text))) => HttpResponse::build(status).body(text + "\n"),
        Err(busy) => {
            HttpResponse::ServiceUnavailable().insert_header((header::RETRY_AFTER, "1")).body(format!("{busy}\n"))
        }
    }
}

fn json_text(text: Arc<str>) -> HttpResponse {
    let cached = (header::CACHE_CONTROL, "no-store");
    HttpResponse::Ok().content_type("application/json").insert_header(cached).body(text.to_string())
}

async fn value_of(page: &str, query: &Query, may_confirm: bool, state: &AdminState) -> Result<Value, Refusal> {
    Ok(match page {
        "overview" => overview::overview(state),
        "fleet" => fleet::fleet(query, state),
        "proxy" => proxy::proxy(query, state).await?,
        "resources" => resource::resources(query, state)?,
        "resource" => resource::resource(query, state).await?,
        "services" => service::services(query, state)?,
        "service" => service::service(query, state)?,
        "callers" => service::callers(query, state)?,
        "callees" => service::callees(query, state)?,
        "graph" => graph::graph(query, state)?,
        "objects" => objects::objects(query, state),
        "object" => object::object(query, state).await?,
        "pushes" => pushes::pushes(state),
        "sources" => sources::sources(may_confirm, state).await,
        "analysis" => analysis::analysis(query, state).await,
        unknown => return Err((StatusCode::NOT_FOUND, format!("the dashboard has no page {unknown:?}"))),
    })
}
