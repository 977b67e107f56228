//! Filters of HTTP and gRPC rules: headers, redirects, rewrites, mirrors, CORS.

use std::collections::BTreeMap;

use super::{
    backend::{self, Referrer},
    conditions::Problem,
    parent::RouteContext,
    types::route::{Cors, Filter, HeaderModifier, HeaderValue, RequestMirror, RequestRedirect, UrlRewrite},
};
use crate::proto::{
    networking::{
        CorsPolicy, Headers, HttpMirrorPolicy, HttpRedirect, HttpRewrite, Percent, RegexRewrite, StringMatch,
        cors_policy::UnmatchedPreflights,
        headers::HeaderOperations,
        http_redirect::{RedirectPort, RedirectPortSelection},
        string_match::MatchType,
    },
    seconds,
};

/// Reason of an invalid filter.
pub const INVALID_FILTER: &str = "InvalidFilter";

/// The problem of a filter of an unknown type.
pub fn unsupported(filter: &Filter) -> Problem {
    Problem::new(INVALID_FILTER, format!("unsupported filter type {:?}", filter.r#type))
}

/// Applies a header filter; returns `false` for other filters.
///
/// # Errors
/// The problem of an invalid header value.
pub fn headers(filter: &Filter, into: &mut Option<Headers>) -> Result<bool, Problem> {
    match filter.r#type.as_str() {
        "RequestHeaderModifier" => {
            if let Some(operations) = operations(filter.request_header_modifier.as_ref())? {
                into.get_or_insert_default().request = Some(operations);
            }
        }
        "ResponseHeaderModifier" => {
            if let Some(operations) = operations(filter.response_header_modifier.as_ref())? {
                into.get_or_insert_default().response = Some(operations);
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn operations(filter: Option<&HeaderModifier>) -> Result<Option<HeaderOperations>, Problem> {
    let Some(filter) = filter else { return Ok(None) };
    let is_valid = |h: &&HeaderValue| h.value.bytes().all(|b| b == 0x09 || (b >= 0x20 && b != 0x7f));
    if let Some(header) = filter.set.iter().chain(&filter.add).find(|h| !is_valid(h)) {
        let message = format!("header {:?} value contains invalid characters", header.name);
        return Err(Problem::new(INVALID_FILTER, message));
    }
    let map = |list: &[HeaderValue]| {
        let mut map: BTreeMap<String, String> = BTreeMap::new();
        for header in list {
            map.entry(header.name.to_lowercase()).or_insert_with(|| header.value.clone());
        }
        map
    };
    Ok(Some(HeaderOperations { add: map(&filter.add), remove: filter.remove.clone(), set: map(&filter.set) }))
}

/// Translates a redirect. An absent port means the request's port, or with a scheme the scheme's, unlike Istio's default.
pub fn redirect(filter: &RequestRedirect) -> HttpRedirect {
    let port = match (filter.port, &filter.scheme) {
        (Some(port), _) => RedirectPort::Port(port),
        (None, Some(_)) => RedirectPort::DerivePort(RedirectPortSelection::FromProtocolDefault as i32),
        (None, None) => RedirectPort::DerivePort(RedirectPortSelection::FromRequestPort as i32),
    };
    let mut redirect = HttpRedirect {
        redirect_code: filter.status_code.unwrap_or_default(),
        authority: filter.hostname.clone().unwrap_or_default(),
        scheme: filter.scheme.clone().unwrap_or_default(),
        redirect_port: Some(port),
        ..HttpRedirect::default()
    };
    if let Some(path) = &filter.path {
        match path.r#type.as_str() {
            "ReplaceFullPath" => redirect.uri = path.replace_full_path.clone().unwrap_or_default(),
            "ReplacePrefixMatch" => redirect.prefix_rewrite = path.replace_prefix_match.clone().unwrap_or_default(),
            _ => {}
        }
    }
    redirect
}

/// Translates a rewrite; `None` when it changes nothing.
pub fn rewrite(filter: &UrlRewrite) -> Option<HttpRewrite> {
    let mut rewrite = HttpRewrite { authority: filter.hostname.clone().unwrap_or_default(), ..HttpRewrite::default() };
    if let Some(path) = &filter.path {
        match path.r#type.as_str() {
            "ReplacePrefixMatch" => {
                let prefix = path.replace_prefix_match.as_deref().unwrap_or_default();
                let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
                rewrite.uri = if prefix.is_empty() { "/".into() } else { prefix.into() };
            }
            "ReplaceFullPath" => {
                let rewritten = path.replace_full_path.clone().unwrap_or_default();
                rewrite.uri_regex_rewrite = Some(RegexRewrite { r#match: "/.*".into(), rewrite: rewritten });
            }
            _ => {}
        }
    }
    (rewrite != HttpRewrite::default()).then_some(rewrite)
}

/// Translates a mirror.
///
/// # Errors
/// The reason the backend cannot be used.
pub fn mirror(
    context: &RouteContext<'_>,
    from: Referrer<'_>,
    filter: &RequestMirror,
) -> Result<HttpMirrorPolicy, Problem> {
    let backend = backend::resolve(context, from, &filter.backend_ref)?;
    if let Some(problem) = backend.problem {
        return Err(problem);
    }
    let share = filter.fraction.as_ref().map(|f| {
        let of = f64::from(f.denominator.unwrap_or(100));
        100.0 * f64::from(f.numerator) / of
    });
    let share = share.or(filter.percent.map(f64::from));
    let percentage = share.map(|value| Percent { value });
    Ok(HttpMirrorPolicy { destination: Some(backend.destination), percentage })
}

/// Translates a CORS policy; preflight requests that it does not admit are not forwarded.
pub fn cors(filter: &Cors) -> CorsPolicy {
    let mut policy = CorsPolicy {
        allow_origins: filter.allow_origins.iter().filter(|o| !o.is_empty()).map(|o| origin(o)).collect(),
        allow_methods: filter.allow_methods.clone(),
        allow_headers: filter.allow_headers.clone(),
        expose_headers: filter.expose_headers.clone(),
        allow_credentials: filter.allow_credentials.filter(|allow| *allow),
        max_age: (filter.max_age > 0).then(|| seconds(filter.max_age)),
        ..CorsPolicy::default()
    };
    policy.set_unmatched_preflights(UnmatchedPreflights::Ignore);
    policy
}

fn origin(origin: &str) -> StringMatch {
    let kind = match (origin, origin.matches('*').count()) {
        ("*", _) => MatchType::Regex(r"^[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s?#]+$".to_string()),
        (exact, 0) => MatchType::Exact(exact.to_string()),
        (_, 1) if origin.ends_with('*') => MatchType::Prefix(origin.trim_end_matches('*').to_string()),
        _ => MatchType::Regex(format!("^{}$", quoted(origin).replace(r"\*", ".*"))),
    };
    StringMatch { match_type: Some(kind) }
}

/// The text with all regular expression characters escaped (Go's `QuoteMeta`).
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted
}
