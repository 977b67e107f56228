//! Conditions on requests: Istio's `HTTPMatchRequest` as Envoy's `RouteMatch` (`TranslateRouteMatch`).

use crate::proto::{
    envoy::{
        config::route::v3::{
            HeaderMatcher, QueryParameterMatcher, RouteMatch, header_matcher::HeaderMatchSpecifier,
            query_parameter_matcher::QueryParameterMatchSpecifier, route_match::PathSpecifier,
        },
        r#type::matcher::v3::{
            ListMatcher, MetadataMatcher, OrMatcher, RegexMatcher, StringMatcher, ValueMatcher, list_matcher,
            metadata_matcher::{PathSegment, path_segment::Segment},
            string_matcher::MatchPattern,
            value_matcher,
        },
    },
    networking::{HttpMatchRequest, StringMatch, string_match::MatchType},
};

const JWT_CLAIM_HEADER: &str = "@request.auth.claims";
const JWT_FILTER: &str = "envoy.filters.http.jwt_authn";
const JWT_PAYLOAD: &str = "payload";

/// The match for every request.
#[must_use]
pub fn any() -> RouteMatch {
    RouteMatch { path_specifier: Some(PathSpecifier::Prefix("/".to_string())), ..Default::default() }
}

/// Translates a match condition. `path_separated`: a prefix ends at a path segment, as Ingress and Gateway API want it.
#[must_use]
pub fn translate(condition: Option<&HttpMatchRequest>, path_separated: bool) -> RouteMatch {
    let mut out = any();
    let Some(condition) = condition else {
        return out;
    };
    for (name, value) in &condition.headers {
        match claim(name, value) {
            Some(claim) => out.dynamic_metadata.push(claim),
            None => out.headers.push(header(name, value)),
        }
    }
    for (name, value) in &condition.without_headers {
        match claim(name, value) {
            Some(claim) => out.dynamic_metadata.push(MetadataMatcher { invert: true, ..claim }),
            None => out.headers.push(HeaderMatcher {
                invert_match: true,
                // Envoy refuses this together with a match on presence.
                treat_missing_header_as_empty: !is_presence(value),
                ..header(name, value)
            }),
        }
    }
    out.headers.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(path) = condition.uri.as_ref().and_then(|uri| path(uri, path_separated)) {
        out.path_specifier = Some(path);
    }
    out.case_sensitive = Some(!condition.ignore_uri_case);
    let pseudo = [(":method", &condition.method), (":authority", &condition.authority), (":scheme", &condition.scheme)];
    out.headers.extend(pseudo.into_iter().filter_map(|(name, value)| Some(header(name, value.as_ref()?))));
    out.query_parameters = condition.query_params.iter().map(|(name, value)| query_parameter(name, value)).collect();
    out
}

/// Whether the match takes every request, so that no route behind it is ever reached (Istio's `IsCatchAllRoute`).
#[must_use]
pub fn is_catch_all(route_match: &RouteMatch) -> bool {
    let any_path = match &route_match.path_specifier {
        Some(PathSpecifier::Prefix(prefix) | PathSpecifier::PathSeparatedPrefix(prefix)) => prefix == "/",
        Some(PathSpecifier::SafeRegex(regex)) => regex.regex == ".*",
        _ => false,
    };
    any_path
        && route_match.headers.is_empty()
        && route_match.query_parameters.is_empty()
        && route_match.dynamic_metadata.is_empty()
}

/// [`is_catch_all`] of the result of [`translate`], without building it.
#[must_use]
pub fn is_catch_all_condition(condition: &HttpMatchRequest, path_separated: bool) -> bool {
    let any_path = match condition.uri.as_ref().and_then(|u| u.match_type.as_ref()) {
        None => true,
        Some(MatchType::Prefix(prefix)) => prefix == "/" || (path_separated && prefix == "//"),
        Some(MatchType::Regex(regex)) => regex == ".*",
        Some(MatchType::Exact(_)) => false,
    };
    any_path
        && condition.headers.is_empty()
        && condition.without_headers.is_empty()
        && condition.query_params.is_empty()
        && condition.method.is_none()
        && condition.authority.is_none()
        && condition.scheme.is_none()
}

/// Istio's string match as Envoy's; `None` when it is empty.
#[must_use]
pub fn string_matcher(value: &StringMatch) -> Option<StringMatcher> {
    let pattern = match value.match_type.as_ref()? {
        MatchType::Exact(text) => MatchPattern::Exact(text.clone()),
        MatchType::Prefix(text) => MatchPattern::Prefix(text.clone()),
        MatchType::Regex(text) => MatchPattern::SafeRegex(regex(text)),
    };
    Some(StringMatcher { match_pattern: Some(pattern), ignore_case: false })
}

/// A regular expression for Envoy.
#[must_use]
pub fn regex(text: &str) -> RegexMatcher {
    RegexMatcher { regex: text.to_string(), ..Default::default() }
}

fn path(uri: &StringMatch, path_separated: bool) -> Option<PathSpecifier> {
    Some(match uri.match_type.as_ref()? {
        MatchType::Exact(path) => PathSpecifier::Path(path.clone()),
        MatchType::Prefix(prefix) if path_separated && prefix != "/" => {
            PathSpecifier::PathSeparatedPrefix(prefix.strip_suffix('/').unwrap_or(prefix).to_string())
        }
        MatchType::Prefix(prefix) => PathSpecifier::Prefix(prefix.clone()),
        MatchType::Regex(text) => PathSpecifier::SafeRegex(regex(text)),
    })
}

/// A match without a value, or with the regex `*` (which is none), asks for presence only.
fn is_presence(value: &StringMatch) -> bool {
    match &value.match_type {
        None => true,
        Some(MatchType::Regex(regex)) => regex == "*",
        Some(_) => false,
    }
}

fn header(name: &str, value: &StringMatch) -> HeaderMatcher {
    let specifier = if is_presence(value) {
        Some(HeaderMatchSpecifier::PresentMatch(true))
    } else {
        string_matcher(value).map(HeaderMatchSpecifier::StringMatch)
    };
    HeaderMatcher { name: name.to_string(), header_match_specifier: specifier, ..Default::default() }
}

fn query_parameter(name: &str, value: &StringMatch) -> QueryParameterMatcher {
    let specifier = if is_presence(value) {
        Some(QueryParameterMatchSpecifier::PresentMatch(true))
    } else {
        string_matcher(value).map(QueryParameterMatchSpecifier::StringMatch)
    };
    QueryParameterMatcher { name: name.to_string(), query_parameter_match_specifier: specifier }
}

/// A match on `@request.auth.claims…` reads the claims that the JWT filter verified; a claim may be a text or a list of texts.
fn claim(name: &str, value: &StringMatch) -> Option<MetadataMatcher> {
    let path = claim_path(name)?;
    let text = ValueMatcher {
        match_pattern: Some(value_matcher::MatchPattern::StringMatch(string_matcher(value).unwrap_or_default())),
    };
    let list = ListMatcher { match_pattern: Some(list_matcher::MatchPattern::OneOf(Box::new(text.clone()))) };
    let list = ValueMatcher { match_pattern: Some(value_matcher::MatchPattern::ListMatch(Box::new(list))) };
    let either = OrMatcher { value_matchers: vec![list, text] };
    Some(MetadataMatcher {
        filter: JWT_FILTER.to_string(),
        path: std::iter::once(JWT_PAYLOAD)
            .chain(path)
            .map(|key| PathSegment { segment: Some(Segment::Key(key.to_string())) })
            .collect(),
        value: Some(ValueMatcher { match_pattern: Some(value_matcher::MatchPattern::OrMatch(either)) }),
        invert: false,
    })
}

/// The claim in `@request.auth.claims.a.b` or `@request.auth.claims[a][b]` (Istio's `ToRoutingClaim`).
fn claim_path(name: &str) -> Option<Vec<&str>> {
    let (head, rest) = name.split_at_checked(JWT_CLAIM_HEADER.len())?;
    if !head.eq_ignore_ascii_case(JWT_CLAIM_HEADER) {
        return None;
    }
    if let Some(dotted) = rest.strip_prefix('.').filter(|r| !r.is_empty()) {
        return Some(dotted.split('.').collect());
    }
    let inner = rest.strip_prefix('[')?.strip_suffix(']').filter(|r| !r.is_empty())?;
    Some(inner.split("][").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_split_by_dots_or_brackets() {
        assert_eq!(claim_path("@request.auth.claims.group.id"), Some(vec!["group", "id"]));
        assert_eq!(claim_path("@Request.Auth.Claims[a.b][c]"), Some(vec!["a.b", "c"]));
        for none in ["@request.auth.claims", "@request.auth.claims.", "@request.auth.claims[]", "x-header", "é"] {
            assert_eq!(claim_path(none), None, "{none}");
        }
    }

    #[test]
    fn the_short_cut_to_catch_all_agrees_with_the_translated_match() {
        let uri = |match_type| Some(StringMatch { match_type: Some(match_type) });
        let text = || StringMatch { match_type: Some(MatchType::Exact("x".into())) };
        let conditions = [
            HttpMatchRequest::default(),
            HttpMatchRequest { uri: uri(MatchType::Prefix("/".into())), ..Default::default() },
            HttpMatchRequest { uri: uri(MatchType::Prefix("//".into())), ..Default::default() },
            HttpMatchRequest { uri: uri(MatchType::Prefix("/a".into())), ..Default::default() },
            HttpMatchRequest { uri: uri(MatchType::Regex(".*".into())), ..Default::default() },
            HttpMatchRequest { uri: uri(MatchType::Exact("/".into())), ..Default::default() },
            HttpMatchRequest { method: Some(text()), ..Default::default() },
            HttpMatchRequest { scheme: Some(text()), ..Default::default() },
            HttpMatchRequest { headers: [("a".into(), text())].into(), ..Default::default() },
            HttpMatchRequest { headers: [("@request.auth.claims.a".into(), text())].into(), ..Default::default() },
            HttpMatchRequest { without_headers: [("a".into(), text())].into(), ..Default::default() },
            HttpMatchRequest { query_params: [("a".into(), text())].into(), ..Default::default() },
        ];
        for condition in &conditions {
            for path_separated in [false, true] {
                let translated = translate(Some(condition), path_separated);
                assert_eq!(
                    is_catch_all_condition(condition, path_separated),
                    is_catch_all(&translated),
                    "{condition:?} {path_separated}"
                );
            }
        }
    }
}
