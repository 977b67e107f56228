//! Rules of HTTPRoutes and GRPCRoutes: each rule and match becomes one route of a VirtualService.

use super::{
    backend::{self, Referrer},
    conditions::Problem,
    filter, matching,
    parent::RouteContext,
    types::route::{BackendReference, Filter, GrpcRule, HttpRule},
};
use crate::{
    proto::{
        go_duration,
        networking::{HttpDirectResponse, HttpRetry, HttpRoute, HttpRouteDestination},
        wkt,
    },
    translate::draft::PoolRule,
};

/// One translated rule and match.
pub struct Rule {
    /// The translated route.
    pub route: HttpRoute,
    /// The endpoint picker of its InferencePool.
    pub pool: Option<PoolRule>,
    /// The problem of its filters or backends, if any.
    pub problem: Option<Problem>,
}

/// Translates a rule of an HTTPRoute, one route per match.
///
/// # Errors
/// The problem that makes the whole route invalid.
pub fn http(context: &RouteContext<'_>, from: Referrer<'_>, name: &str, rule: &HttpRule) -> Result<Vec<Rule>, Problem> {
    let mut route = HttpRoute { name: rule.name.clone().unwrap_or_else(|| name.to_string()), ..HttpRoute::default() };
    let mut mirror_problem = None;
    let matches = rule.matches.iter().map(matching::http).collect::<Result<Vec<_>, _>>()?;
    for filter in &rule.filters {
        if filter::headers(filter, &mut route.headers)? {
            continue;
        }
        match filter.r#type.as_str() {
            "RequestRedirect" => route.redirect = filter.request_redirect.as_ref().map(filter::redirect),
            "RequestMirror" => {
                match filter.request_mirror.as_ref().map(|m| filter::mirror(context, from, m)).transpose() {
                    Ok(mirror) => route.mirrors.extend(mirror),
                    Err(problem) => mirror_problem = Some(problem),
                }
            }
            "URLRewrite" => route.rewrite = filter.url_rewrite.as_ref().and_then(filter::rewrite),
            "CORS" => route.cors_policy = filter.cors.as_ref().map(filter::cors),
            _ => return Err(filter::unsupported(filter)),
        }
    }
    limits(rule, &mut route);
    let (mut pool, mut problem) = (None, None);
    if backend::total_weight(&rule.backend_refs) == 0 && route.redirect.is_none() {
        route.direct_response = Some(HttpDirectResponse { status: 500, body: None });
    } else {
        (route.route, pool, problem) = destinations(context, from, &rule.backend_refs)?;
    }
    let problem = Problem::joined(problem, mirror_problem);
    Ok(each_match(route, matches).map(|route| Rule { route, pool: pool.clone(), problem: problem.clone() }).collect())
}

/// Translates a rule of a GRPCRoute, one route per match.
///
/// # Errors
/// The problem that makes the whole route invalid.
pub fn grpc(context: &RouteContext<'_>, from: Referrer<'_>, name: &str, rule: &GrpcRule) -> Result<Vec<Rule>, Problem> {
    let mut route = HttpRoute { name: rule.name.clone().unwrap_or_else(|| name.to_string()), ..HttpRoute::default() };
    let matches = rule.matches.iter().map(matching::grpc).collect::<Result<Vec<_>, _>>()?;
    for filter in &rule.filters {
        if filter::headers(filter, &mut route.headers)? {
            continue;
        }
        if filter.r#type != "RequestMirror" {
            return Err(filter::unsupported(filter));
        }
        if let Some(mirror) = &filter.request_mirror {
            route.mirrors.push(filter::mirror(context, from, mirror)?);
        }
    }
    let mut problem = None;
    if backend::total_weight(&rule.backend_refs) == 0 {
        route.direct_response = Some(HttpDirectResponse { status: 500, body: None });
    } else {
        (route.route, _, problem) = destinations(context, from, &rule.backend_refs)?;
    }
    Ok(each_match(route, matches).map(|route| Rule { route, pool: None, problem: problem.clone() }).collect())
}

/// A copy of the route for each match; without matches the route itself.
fn each_match(
    route: HttpRoute,
    matches: Vec<crate::proto::networking::HttpMatchRequest>,
) -> impl Iterator<Item = HttpRoute> {
    let bare = matches.is_empty().then(|| route.clone());
    let matched = matches.into_iter().map(move |m| HttpRoute { r#match: vec![m], ..route.clone() });
    bare.into_iter().chain(matched)
}

/// Sets timeouts and retries.
fn limits(rule: &HttpRule, route: &mut HttpRoute) {
    if let Some(retry) = &rule.retry {
        let codes = retry.codes.iter().map(u32::to_string);
        let always = ["connect-failure", "refused-stream", "unavailable", "cancelled"].map(String::from);
        let attempts = retry.attempts.unwrap_or(2);
        let retry_on = always.into_iter().chain(codes).collect::<Vec<_>>().join(",");
        route.retries = Some(HttpRetry {
            attempts,
            retry_on: if attempts == 0 { String::new() } else { retry_on },
            backoff: retry.backoff.as_deref().map(|text| duration(text).unwrap_or_default()),
            ..HttpRetry::default()
        });
    }
    let Some(timeouts) = &rule.timeouts else { return };
    let set = |text: &Option<String>| text.as_deref().and_then(duration).filter(|d| *d != wkt::Duration::default());
    if let Some(request) = set(&timeouts.request) {
        route.timeout = Some(request);
    }
    if let Some(of_try) = set(&timeouts.backend_request) {
        match &mut route.retries {
            Some(retries) => retries.per_try_timeout = Some(of_try),
            None => route.timeout = Some(of_try),
        }
    }
}

fn duration(text: &str) -> Option<wkt::Duration> {
    wkt::Duration::try_from(go_duration(text)?).ok()
}

type Destinations = (Vec<HttpRouteDestination>, Option<PoolRule>, Option<Problem>);

/// Destinations with their weights and filters.
fn destinations(
    context: &RouteContext<'_>,
    from: Referrer<'_>,
    backends: &[BackendReference],
) -> Result<Destinations, Problem> {
    let (mut all, mut pool, mut problem) = (Vec::new(), None, None);
    for (to, weight) in backend::weighted(backends) {
        let backend = backend::resolve(context, from, to)?;
        problem = backend.problem.or(problem);
        pool = backend.pool;
        let mut destination =
            HttpRouteDestination { destination: Some(backend.destination), weight, ..HttpRouteDestination::default() };
        for filter in &to.filters {
            apply(filter, &mut destination)?;
        }
        all.push(destination);
    }
    Ok((all, pool, problem))
}

fn apply(filter: &Filter, destination: &mut HttpRouteDestination) -> Result<(), Problem> {
    match filter::headers(filter, &mut destination.headers)? {
        true => Ok(()),
        false => Err(filter::unsupported(filter)),
    }
}
