//! Envoy's RBAC filter for a request, as far as our rules use it. A part that is not known here fails the test.

use std::{cell::RefCell, collections::HashMap};

use pilothouse::proto::envoy::{
    config::{
        core::v3::CidrRange,
        rbac::v3::{Permission, Principal, Rbac, permission::Rule, principal::Identifier, rbac::Action},
        route::v3::{HeaderMatcher, header_matcher::HeaderMatchSpecifier},
    },
    extensions::{
        filters::{
            http::rbac::v3::Rbac as HttpRbac,
            network::http_connection_manager::v3::{HttpFilter, http_filter::ConfigType},
        },
        path::r#match::uri_template::v3::UriTemplateMatchConfig,
    },
    r#type::matcher::v3::{
        MetadataMatcher, StringMatcher, ValueMatcher, list_matcher, metadata_matcher::path_segment::Segment,
        path_matcher, string_matcher::MatchPattern, value_matcher,
    },
};
use prost::Message;
use regex::Regex;
use serde_json::Value;

use super::Request;

/// The rules of the filters, in order.
pub fn decoded(filters: &[HttpFilter]) -> Vec<Rbac> {
    let rules = filters.iter().filter_map(|filter| {
        let Some(ConfigType::TypedConfig(any)) = &filter.config_type else { panic!("{filter:?}") };
        HttpRbac::decode(any.value.as_slice()).unwrap().rules
    });
    rules.collect()
}

/// Whether all filters admit the request.
pub fn admits(rules: &[Rbac], request: &Request) -> bool {
    rules.iter().all(|rules| {
        let hit = rules.policies.values().any(|policy| {
            policy.permissions.iter().any(|p| permits(p, request))
                && policy.principals.iter().any(|p| is_of(p, request))
        });
        match rules.action() {
            Action::Allow => hit,
            Action::Deny => !hit,
            Action::Log => true,
        }
    })
}

fn permits(permission: &Permission, request: &Request) -> bool {
    match permission.rule.as_ref().unwrap() {
        Rule::Any(any) => *any,
        Rule::AndRules(set) => set.rules.iter().all(|rule| permits(rule, request)),
        Rule::OrRules(set) => set.rules.iter().any(|rule| permits(rule, request)),
        Rule::NotRule(rule) => !permits(rule, request),
        Rule::Header(matcher) => header(matcher, request),
        Rule::UrlPath(matcher) => match matcher.rule.as_ref().unwrap() {
            path_matcher::Rule::Path(pattern) => text(pattern, request.path),
        },
        Rule::DestinationPort(port) => *port == request.port,
        Rule::UriTemplate(extension) => {
            let any = extension.typed_config.as_ref().unwrap();
            template(&UriTemplateMatchConfig::decode(any.value.as_slice()).unwrap().path_template, request.path)
        }
        other => panic!("{other:?}"),
    }
}

#[allow(deprecated, reason = "the generated rules have these fields, as Istio's")]
fn is_of(principal: &Principal, request: &Request) -> bool {
    match principal.identifier.as_ref().unwrap() {
        Identifier::Any(any) => *any,
        Identifier::AndIds(set) => set.ids.iter().all(|id| is_of(id, request)),
        Identifier::OrIds(set) => set.ids.iter().any(|id| is_of(id, request)),
        Identifier::NotId(id) => !is_of(id, request),
        Identifier::Authenticated(peer) => {
            let name = peer.principal_name.as_ref();
            !request.principal.is_empty()
                && name.is_none_or(|name| text(name, &format!("spiffe://{}", request.principal)))
        }
        Identifier::DirectRemoteIp(range) | Identifier::RemoteIp(range) => contains(range, request.ip),
        Identifier::Header(matcher) => header(matcher, request),
        Identifier::Metadata(matcher) => metadata(matcher, request),
        other => panic!("{other:?}"),
    }
}

fn header(matcher: &HeaderMatcher, request: &Request) -> bool {
    let value = match matcher.name.as_str() {
        ":authority" => request.host,
        ":method" => request.method,
        "x-tenant" => request.tenant,
        _ => "",
    };
    let found = !value.is_empty();
    match matcher.header_match_specifier.as_ref().unwrap() {
        HeaderMatchSpecifier::PresentMatch(present) => found == *present,
        HeaderMatchSpecifier::StringMatch(pattern) => found && text(pattern, value),
        other => panic!("{other:?}"),
    }
}

fn text(matcher: &StringMatcher, value: &str) -> bool {
    let lower = |text: &str| if matcher.ignore_case { text.to_lowercase() } else { text.to_string() };
    let value = lower(value);
    match matcher.match_pattern.as_ref().unwrap() {
        MatchPattern::Exact(exact) => value == lower(exact),
        MatchPattern::Prefix(prefix) => value.starts_with(&lower(prefix)),
        MatchPattern::Suffix(suffix) => value.ends_with(&lower(suffix)),
        MatchPattern::SafeRegex(regex) => whole(&regex.regex, &value),
        other => panic!("{other:?}"),
    }
}

/// Whether the expression matches the whole text. Each is compiled once, since that takes longest.
fn whole(regex: &str, value: &str) -> bool {
    thread_local!(static COMPILED: RefCell<HashMap<String, Regex>> = RefCell::default());
    COMPILED.with_borrow_mut(|compiled| {
        let whole = || Regex::new(&format!("^(?:{regex})$")).unwrap();
        compiled.entry(regex.to_string()).or_insert_with(whole).is_match(value)
    })
}

fn template(template: &str, path: &str) -> bool {
    let segment = |part: &str| match part {
        "*" => "[^/]+".to_string(),
        "**" => ".*".to_string(),
        literal => regex::escape(literal),
    };
    whole(&template.split('/').map(segment).collect::<Vec<_>>().join("/"), path)
}

fn contains(range: &CidrRange, ip: &str) -> bool {
    let length = range.prefix_len.map_or(0, |length| u8::try_from(length).unwrap());
    let net = ipnet::IpNet::new(range.address_prefix.parse().unwrap(), length).unwrap();
    net.contains(&ip.parse::<std::net::IpAddr>().unwrap())
}

/// Metadata of the filter that verifies tokens: the claims.
fn metadata(matcher: &MetadataMatcher, request: &Request) -> bool {
    assert_eq!(matcher.filter, "envoy.filters.http.jwt_authn");
    let mut keys = matcher.path.iter().map(|segment| {
        let Some(Segment::Key(key)) = &segment.segment else { panic!("{segment:?}") };
        key.as_str()
    });
    assert_eq!(keys.next(), Some("payload"));
    let found = keys.fold(request.claims.as_ref(), |at, key| at?.get(key));
    found.is_some_and(|found| value(matcher.value.as_ref().unwrap(), found)) != matcher.invert
}

fn value(matcher: &ValueMatcher, given: &Value) -> bool {
    match matcher.match_pattern.as_ref().unwrap() {
        value_matcher::MatchPattern::StringMatch(pattern) => given.as_str().is_some_and(|given| text(pattern, given)),
        value_matcher::MatchPattern::ListMatch(list) => {
            let Some(list_matcher::MatchPattern::OneOf(one)) = &list.match_pattern else { panic!("{list:?}") };
            given.as_array().is_some_and(|given| given.iter().any(|given| value(one, given)))
        }
        value_matcher::MatchPattern::OrMatch(any) => any.value_matchers.iter().any(|one| value(one, given)),
        other => panic!("{other:?}"),
    }
}
