//! Matches of HTTP and gRPC rules, and Gateway API's precedence of rules.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{
    conditions::Problem,
    types::route::{GrpcMatch, HttpMatch, ValueMatch},
};
use crate::proto::networking::{HttpMatchRequest, HttpRoute, StringMatch, string_match::MatchType};

const INVALID: &str = "InvalidConfiguration";

fn string_match(kind: MatchType) -> StringMatch {
    StringMatch { match_type: Some(kind) }
}

/// Translates a match of an HTTPRoute.
///
/// # Errors
/// The problem of an unknown match type.
pub fn http(wanted: &HttpMatch) -> Result<HttpMatchRequest, Problem> {
    let value = wanted.path.value.clone().unwrap_or_else(|| "/".to_string());
    let uri = match wanted.path.r#type.as_deref().unwrap_or("PathPrefix") {
        "PathPrefix" if value == "/" => MatchType::Prefix(value),
        "PathPrefix" => MatchType::Prefix(value.strip_suffix('/').unwrap_or(&value).to_string()),
        "Exact" => MatchType::Exact(value),
        "RegularExpression" => MatchType::Regex(value),
        other => return Err(unknown(other, "Path match")),
    };
    Ok(HttpMatchRequest {
        uri: Some(string_match(uri)),
        headers: values(&wanted.headers, "HeaderMatch")?,
        query_params: values(&wanted.query_params, "QueryParams")?,
        method: wanted.method.as_ref().map(|m| string_match(MatchType::Exact(m.clone()))),
        ..HttpMatchRequest::default()
    })
}

/// Translates a match of a GRPCRoute: the method becomes its path in gRPC over HTTP/2.
///
/// # Errors
/// The problem of an unknown match type, or of an empty method match.
pub fn grpc(wanted: &GrpcMatch) -> Result<HttpMatchRequest, Problem> {
    let headers = values(&wanted.headers, "HeaderMatch")?;
    let Some(method) = &wanted.method else { return Ok(HttpMatchRequest { headers, ..HttpMatchRequest::default() }) };
    let kind = method.r#type.as_deref().unwrap_or("Exact");
    let uri = match (kind, &method.service, &method.method) {
        (_, None, None) => return Err(Problem::new(INVALID, "gRPC match must have method or service defined")),
        ("Exact", Some(service), None) => MatchType::Prefix(format!("/{service}/")),
        ("Exact" | "RegularExpression", None, Some(method)) => MatchType::Regex(format!("/[^/]+/{method}")),
        ("Exact", Some(service), Some(method)) => MatchType::Exact(format!("/{service}/{method}")),
        ("RegularExpression", Some(service), None) => MatchType::Regex(format!("/{service}/.+")),
        ("RegularExpression", Some(service), Some(method)) => MatchType::Regex(format!("/{service}/{method}")),
        (other, ..) => return Err(unknown(other, "Path match")),
    };
    Ok(HttpMatchRequest { uri: Some(string_match(uri)), headers, ..HttpMatchRequest::default() })
}

fn unknown(kind: &str, what: &str) -> Problem {
    Problem::new(INVALID, format!("unknown type: {kind:?} is not supported {what} type"))
}

fn values(wanted: &[ValueMatch], what: &str) -> Result<BTreeMap<String, StringMatch>, Problem> {
    let of = |wanted: &ValueMatch| {
        let kind = match wanted.r#type.as_deref().unwrap_or("Exact") {
            "Exact" => MatchType::Exact(wanted.value.clone()),
            "RegularExpression" => MatchType::Regex(wanted.value.clone()),
            other => return Err(unknown(other, what)),
        };
        Ok((wanted.name.clone(), string_match(kind)))
    };
    wanted.iter().map(of).collect()
}

/// Sorts rules by Gateway API's precedence: exact before prefix before regular expression, longer before shorter, then those
/// with a method, with more headers, with more query parameters; rules without a match last. Equal rules keep their order.
pub fn sort(routes: &mut [HttpRoute]) {
    routes.sort_by_key(|route| {
        let Some(first) = route.r#match.first() else { return (true, None) };
        let (rank, length) = match first.uri.as_ref().and_then(|u| u.match_type.as_ref()) {
            Some(MatchType::Exact(text)) => (3, text.len()),
            Some(MatchType::Prefix(text)) => (2, text.len()),
            Some(MatchType::Regex(text)) => (1, text.len()),
            None => (-1, 0),
        };
        let specificity = (rank, length, first.method.is_some(), first.headers.len(), first.query_params.len());
        (false, Some(Reverse(specificity)))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_specific_rule_comes_first() {
        let rule = |name: &str, uri: Option<MatchType>, headers: usize| HttpRoute {
            name: name.into(),
            r#match: vec![HttpMatchRequest {
                uri: uri.map(string_match),
                headers: (0..headers).map(|i| (i.to_string(), StringMatch::default())).collect(),
                ..HttpMatchRequest::default()
            }],
            ..HttpRoute::default()
        };
        let mut rules = vec![
            HttpRoute { name: "all".into(), ..HttpRoute::default() },
            rule("prefix", Some(MatchType::Prefix("/a".into())), 0),
            rule("headers", Some(MatchType::Prefix("/a".into())), 2),
            rule("longer", Some(MatchType::Prefix("/ab".into())), 0),
            rule("exact", Some(MatchType::Exact("/".into())), 0),
        ];
        sort(&mut rules);
        let names: Vec<&str> = rules.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names, ["exact", "longer", "headers", "prefix", "all"]);
    }
}
