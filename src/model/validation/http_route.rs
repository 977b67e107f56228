//! HTTP routes of a VirtualService.

#![allow(deprecated, reason = "deprecated fields are validated as long as Istio reads them")]

use super::{check::Check, destination, header, names, range};
use crate::model::grpc_status;
use crate::proto::networking::{
    CorsPolicy, HttpDirectResponse, HttpFaultInjection, HttpMatchRequest, HttpRedirect, HttpRetry, HttpRewrite,
    HttpRoute,
    http_body::Specifier,
    http_fault_injection::{abort::ErrorType, delay::HttpDelayType},
    http_redirect::RedirectPort,
    string_match::MatchType,
};

const RETRY_ON: [&str; 16] = [
    "5xx",
    "gateway-error",
    "reset",
    "reset-before-request",
    "connect-failure",
    "retriable-4xx",
    "refused-stream",
    "retriable-status-codes",
    "retriable-headers",
    "envoy-ratelimited",
    "http3-post-connect-failure",
    "cancelled",
    "deadline-exceeded",
    "internal",
    "resource-exhausted",
    "unavailable",
];
const METHODS: [&str; 10] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE", "*"];
const BODY_MAX: usize = 1024 * 1024;
const BODY_LARGE: usize = 100 * 1024;

/// One route. `delegate`: the object has no hosts. `named`: users wrote the destinations, so they must be valid names.
pub(super) fn validate(c: &mut Check, route: &HttpRoute, delegate: bool, named: bool) {
    actions(c, route, delegate);
    c.errors_only(|c| c.each("match", &route.r#match, condition));
    header::operations(c, route.headers.as_ref());
    if let Some(policy) = &route.cors_policy {
        c.at("corsPolicy", |c| cors(c, policy));
    }
    if let Some(f) = &route.fault {
        c.at("fault", |c| fault(c, f));
    }
    if let Some(percent) = route.mirror_percent {
        c.need(percent <= 100, "mirrorPercent must be at most 100");
        c.warn("mirrorPercent is deprecated; use mirrorPercentage");
    }
    c.field("mirrorPercentage", range::mirror_percentage(route.mirror_percentage.as_ref()));
    if let Some(mirror) = &route.mirror {
        c.at("mirror", |c| destination::validate(c, mirror));
    }
    c.each("mirrors", &route.mirrors, |c, mirror| match &mirror.destination {
        None => c.error("destination is required"),
        Some(d) => {
            c.at("destination", |c| destination::validate(c, d));
            c.field("percentage", range::mirror_percentage(mirror.percentage.as_ref()));
        }
    });
    if let Some(r) = &route.redirect {
        c.at("redirect", |c| redirect(c, r, &route.r#match));
    }
    if let Some(response) = &route.direct_response {
        c.at("directResponse", |c| direct_response(c, response));
    }
    if let Some(r) = &route.retries {
        c.at("retries", |c| retries(c, r));
    }
    if let Some(r) = &route.rewrite {
        c.at("rewrite", |c| rewrite(c, r));
    }
    authority(c, route);
    c.each("route", &route.route, |c, r| {
        header::operations(c, r.headers.as_ref());
        destination::weighted(c, r.destination.as_ref(), r.weight, named);
    });
    destination::weights(c, route.route.iter().map(|r| r.weight));
    c.field("timeout", range::optional_duration(route.timeout.as_ref()));
}

/// Combinations of actions.
fn actions(c: &mut Check, route: &HttpRoute, delegate: bool) {
    if route.delegate.is_some() && !delegate {
        c.need(route.redirect.is_none(), "redirect cannot stand beside delegate; move it to the delegate");
        return c.need(route.route.is_empty(), "route cannot stand beside delegate; move it to the delegate");
    }
    c.need(route.delegate.is_none(), "a delegate cannot delegate; remove it");
    let chosen = match (&route.redirect, &route.direct_response) {
        (Some(_), _) => Some("redirect"),
        (None, Some(_)) => Some("directResponse"),
        (None, None) => None,
    };
    match chosen {
        Some(chosen) => {
            for (name, unset) in [
                ("route", route.route.is_empty()),
                ("fault", route.fault.is_none()),
                ("rewrite", route.rewrite.is_none()),
                ("directResponse", route.redirect.is_none() || route.direct_response.is_none()),
            ] {
                c.need(unset, format_args!("only one of {name} and {chosen} may be set"));
            }
        }
        None => c.need(!route.route.is_empty(), "one of route, redirect and directResponse is required"),
    }
    c.need(route.mirror.is_none() || route.mirrors.is_empty(), "only one of mirror and mirrors may be set");
}

fn condition(c: &mut Check, m: &HttpMatchRequest) {
    for (name, value) in &m.headers {
        c.field("headers", header::match_name(name));
        c.field(format_args!("headers.{name}"), header::string(Some(value)));
    }
    for (name, value) in &m.without_headers {
        c.field("withoutHeaders", header::match_name(name));
        // `*` is not a regex: it matches the presence of the header.
        if !matches!(&value.match_type, Some(MatchType::Regex(text)) if text == "*") {
            c.field(format_args!("withoutHeaders.{name}"), header::string(Some(value)));
        }
    }
    c.field("uri", header::string_regex(m.uri.as_ref()));
    c.field("scheme", header::string(m.scheme.as_ref()));
    c.field("method", header::string(m.method.as_ref()));
    c.field("authority", header::string(m.authority.as_ref()));
    for (name, value) in &m.query_params {
        c.field(format_args!("queryParams.{name}"), header::string(Some(value)));
    }
    if m.port != 0 {
        c.field("port", range::port(m.port));
    }
    names::labels(c, "sourceLabels", &m.source_labels);
    names::gateways(c, &m.gateways, false);
    c.need(
        m.source_namespace.is_empty() || names::is_dns_label(&m.source_namespace),
        format_args!("sourceNamespace {:?} must be a DNS label", m.source_namespace),
    );
}

fn cors(c: &mut Check, policy: &CorsPolicy) {
    c.each("allowOrigins", &policy.allow_origins, |c, origin| {
        let empty = match &origin.match_type {
            Some(MatchType::Exact(t) | MatchType::Prefix(t) | MatchType::Regex(t)) => t.is_empty(),
            None => true,
        };
        c.need(!empty, "exact, prefix or regex is required");
        if let Err(text) = header::string_regex(Some(origin).filter(|_| !empty)) {
            c.error(text);
        }
    });
    for method in &policy.allow_methods {
        c.need(METHODS.contains(&method.as_str()), format_args!("allowMethods: {method:?} is not an HTTP method"));
    }
    for name in &policy.allow_headers {
        c.field("allowHeaders", header::cors_name(name));
    }
    for name in &policy.expose_headers {
        c.field("exposeHeaders", header::cors_name(name));
    }
    c.field("maxAge", range::optional_duration(policy.max_age.as_ref()));
    c.need(policy.max_age.as_ref().is_none_or(|a| a.nanos <= 0), "maxAge must be a whole number of seconds");
}

fn fault(c: &mut Check, fault: &HttpFaultInjection) {
    c.need(fault.abort.is_some() || fault.delay.is_some(), "one of abort and delay is required");
    if let Some(abort) = &fault.abort {
        c.field("abort.percentage", range::fraction(abort.percentage.as_ref()));
        match &abort.error_type {
            Some(ErrorType::GrpcStatus(status)) => c.need(
                grpc_status::code(status).is_some(),
                format_args!("abort.grpcStatus {status:?} is not known; write it as NOT_FOUND"),
            ),
            Some(ErrorType::HttpStatus(status)) => c.field("abort.httpStatus", range::http_status((*status).into())),
            Some(ErrorType::Http2Error(_)) => c.error("abort.http2Error is not supported; use httpStatus"),
            None => {}
        }
    }
    if let Some(delay) = &fault.delay {
        c.field("delay.percentage", range::fraction(delay.percentage.as_ref()));
        match &delay.http_delay_type {
            Some(HttpDelayType::FixedDelay(delay)) => c.field("delay.fixedDelay", range::duration(delay)),
            Some(HttpDelayType::ExponentialDelay(_)) => {
                c.error("delay.exponentialDelay is not supported; use fixedDelay")
            }
            None => {}
        }
    }
}

fn redirect(c: &mut Check, redirect: &HttpRedirect, conditions: &[HttpMatchRequest]) {
    c.need(
        redirect.uri.is_empty() || redirect.prefix_rewrite.is_empty(),
        "only one of uri and prefixRewrite may be set",
    );
    let prefixes = conditions
        .iter()
        .filter_map(|m| m.uri.as_ref())
        .all(|uri| matches!(uri.match_type, Some(MatchType::Prefix(_))));
    c.need(redirect.prefix_rewrite.is_empty() || prefixes, "prefixRewrite needs prefix matches on uri only");
    let texts = [&redirect.uri, &redirect.prefix_rewrite, &redirect.authority, &redirect.scheme];
    c.need(
        redirect.redirect_port.is_some() || texts.iter().any(|t| !t.is_empty()),
        "one of uri, prefixRewrite, authority, scheme and port is required",
    );
    c.need(matches!(redirect.redirect_code, 0 | 300..=399), "redirectCode must be in 300..399");
    c.need(matches!(redirect.scheme.as_str(), "" | "http" | "https"), "scheme must be http or https");
    if let Some(RedirectPort::Port(port @ 1..)) = redirect.redirect_port {
        c.field("port", range::port(port));
    }
}

fn direct_response(c: &mut Check, response: &HttpDirectResponse) {
    let size = match response.body.as_ref().and_then(|b| b.specifier.as_ref()) {
        Some(Specifier::String(text)) => text.len(),
        Some(Specifier::Bytes(bytes)) => bytes.len(),
        None => 0,
    };
    if size > BODY_MAX {
        c.error("body must be at most 1 MB");
    } else if size > BODY_LARGE {
        c.warn("body: large responses slow the control plane down");
    }
    c.field("status", range::http_status(response.status.into()));
}

pub(super) fn retries(c: &mut Check, retries: &HttpRetry) {
    c.field("attempts", range::natural(retries.attempts));
    let set =
        retries.per_try_timeout.is_some() || !retries.retry_on.is_empty() || retries.retry_remote_localities.is_some();
    c.need(retries.attempts != 0 || !set, "attempts: 0 switches retries off; remove the other fields");
    c.field("perTryTimeout", range::optional_duration(retries.per_try_timeout.as_ref()));
    c.field("backoff", range::optional_duration(retries.backoff.as_ref()));
    for policy in retries.retry_on.split(',').filter(|_| !retries.retry_on.is_empty()) {
        let status = policy.parse().ok().and_then(|code| http::StatusCode::from_u16(code).ok());
        c.need(
            RETRY_ON.contains(&policy) || status.is_some_and(|s| s.canonical_reason().is_some()),
            format_args!("retryOn: {policy:?} is neither a policy of Envoy nor an HTTP status"),
        );
    }
}

fn rewrite(c: &mut Check, rewrite: &HttpRewrite) {
    let regex = rewrite.uri_regex_rewrite.as_ref();
    c.need(rewrite.uri.is_empty() || regex.is_none(), "only one of uri and uriRegexRewrite may be set");
    c.need(
        !rewrite.uri.is_empty() || regex.is_some() || !rewrite.authority.is_empty(),
        "one of uri, uriRegexRewrite and authority is required",
    );
    if let Some(regex) = regex {
        c.need(!regex.r#match.is_empty() && !regex.rewrite.is_empty(), "uriRegexRewrite needs match and rewrite");
        c.field("uriRegexRewrite.match", header::regex(&regex.r#match));
    }
}

/// The authority can be set in one place only.
fn authority(c: &mut Check, route: &HttpRoute) {
    let request = route.headers.as_ref().and_then(|h| h.request.as_ref());
    let rewritten = route.rewrite.iter().map(|r| &r.authority);
    let set = request.into_iter().flat_map(|r| r.set.iter().chain(&r.add));
    let by_header = set.filter(|(name, _)| header::is_authority(name)).map(|(_, value)| value);
    c.need(
        rewritten.chain(by_header).filter(|a| !a.is_empty()).count() < 2,
        "the authority is set twice, by rewrite.authority or a header; keep one",
    );
}
