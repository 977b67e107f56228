//! Rules over several fields, with the defaults that an API server fills in before it evaluates them.

use std::{collections::BTreeSet, net::IpAddr};

use serde_json::Value;

use super::shape::{is_label_key, is_path, is_subdomain, milliseconds};
use crate::model::validation::check::Check;

/// Maximum number of matches over all rules of a route.
const MOST_MATCHES: usize = 128;

fn text<'v>(value: &'v Value, key: &str, default: &'v str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or(default)
}

fn has(value: &Value, key: &str) -> bool {
    value.get(key).is_some_and(|v| !v.is_null())
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).map(elements).unwrap_or_default()
}

fn elements(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn count(value: &Value, key: &str) -> usize {
    value.get(key).map_or(0, |v| v.as_array().map_or_else(|| v.as_object().map_or(0, serde_json::Map::len), Vec::len))
}

/// A field that belongs to one type: required with that type, refused with others.
fn goes_with(value: &Value, kind: &str, wanted: &str, field: &str, walk: &mut Check) {
    walk.need(kind != wanted || has(value, field), format_args!("type {wanted} needs {field}"));
    walk.need(kind == wanted || !has(value, field), format_args!("{field} is for type {wanted} only, not {kind}"));
}

pub(super) fn services_have_ports(value: &Value, walk: &mut Check) {
    let service = text(value, "group", "").is_empty() && text(value, "kind", "Service") == "Service";
    walk.need(!service || has(value, "port"), "a reference to a Service must have a port");
}

pub(super) fn parents_differ(value: &Value, walk: &mut Check) {
    let parent = |p: &Value| {
        let group = text(p, "group", "gateway.networking.k8s.io").to_string();
        (
            group,
            text(p, "kind", "Gateway").to_string(),
            text(p, "name", "").to_string(),
            text(p, "namespace", "").to_string(),
        )
    };
    let part = |p: &Value| (text(p, "sectionName", "").to_string(), p.get("port").and_then(Value::as_i64).unwrap_or(0));
    references_differ(elements(value), parent, part, "sectionName or port", walk);
}

pub(super) fn targets_differ(value: &Value, walk: &mut Check) {
    let target = |t: &Value| {
        (text(t, "group", "").to_string(), text(t, "kind", "").to_string(), text(t, "name", "").to_string())
    };
    references_differ(elements(value), target, |t| text(t, "sectionName", "").to_string(), "sectionName", walk);
}

/// References to one object must name different parts of it, and each of them must name one.
fn references_differ<O: Ord, P: Ord + Default>(
    list: &[Value],
    object: impl Fn(&Value) -> O,
    part: impl Fn(&Value) -> P,
    named: &str,
    walk: &mut Check,
) {
    let mut seen = BTreeSet::new();
    for (i, value) in list.iter().enumerate() {
        let others = list.iter().enumerate().filter(|(j, other)| *j != i && object(other) == object(value));
        if others.count() > 0 {
            walk.step(format_args!("[{i}]"), |walk| {
                let whole = part(value) == P::default();
                walk.need(!whole, format_args!("of several references to one object, each must have {named}"));
                let again = !whole && !seen.insert((object(value), part(value)));
                walk.need(!again, "the same reference is there twice");
            });
        }
    }
}

pub(super) fn listeners_fit_their_protocols(value: &Value, walk: &mut Check) {
    for (i, listener) in elements(value).iter().enumerate() {
        let protocol = text(listener, "protocol", "");
        let mode = listener.get("tls").map(|tls| text(tls, "mode", "Terminate"));
        walk.step(format_args!("[{i}]"), |walk| {
            walk.need(
                !matches!(protocol, "HTTP" | "TCP" | "UDP") || mode.is_none(),
                format_args!("tls is not for protocol {protocol}"),
            );
            walk.need(
                protocol != "HTTPS" || mode.is_none_or(|m| m == "Terminate"),
                "tls.mode of protocol HTTPS must be Terminate",
            );
            walk.need(protocol != "TLS" || mode.is_some(), "protocol TLS needs tls with a mode");
            let named = matches!(protocol, "TCP" | "UDP") && has(listener, "hostname");
            walk.need(!named, format_args!("hostname is not for protocol {protocol}"));
            if !matches!(protocol, "HTTP" | "HTTPS" | "TLS" | "TCP" | "UDP") && !protocol.contains('/') {
                walk.warn(format_args!("protocol {protocol:?} is none of HTTP, HTTPS, TLS, TCP and UDP"));
            }
        });
    }
}

pub(super) fn listeners_differ(value: &Value, walk: &mut Check) {
    let mut seen = BTreeSet::new();
    for (i, listener) in elements(value).iter().enumerate() {
        let port = listener.get("port").and_then(Value::as_i64);
        let socket = (port, text(listener, "protocol", ""), listener.get("hostname").and_then(Value::as_str));
        let again = !seen.insert(socket);
        walk.step(format_args!("[{i}]"), |walk| {
            walk.need(!again, "another listener has the same port, protocol and hostname");
        });
    }
}

pub(super) fn terminating_has_certificates(value: &Value, walk: &mut Check) {
    let terminates = text(value, "mode", "Terminate") == "Terminate";
    let has_some = count(value, "certificateRefs") + count(value, "options") > 0;
    walk.need(!terminates || has_some, "mode Terminate needs certificateRefs or options");
}

pub(super) fn addresses_differ(value: &Value, walk: &mut Check) {
    let mut seen = BTreeSet::new();
    for (i, address) in elements(value).iter().enumerate() {
        let (kind, value) = (text(address, "type", "IPAddress"), address.get("value").and_then(Value::as_str));
        walk.step(format_args!("[{i}].value"), |walk| {
            let host =
                value.filter(|_| kind == "Hostname").is_none_or(|v| is_subdomain(v.strip_prefix("*.").unwrap_or(v)));
            walk.need(host, "it is not a DNS name");
            let again = matches!(kind, "Hostname" | "IPAddress") && value.is_some_and(|v| !seen.insert((kind, v)));
            walk.need(!again, "the same address is there twice");
        });
    }
}

pub(super) fn keys_of_labels(value: &Value, walk: &mut Check) {
    for key in value.as_object().into_iter().flatten().map(|(key, _)| key).filter(|key| !is_label_key(key)) {
        walk.error(format_args!("{key:?} is not a name, with or without a DNS name and / before it"));
    }
}

pub(super) fn fraction_is_at_most_one(value: &Value, walk: &mut Check) {
    let number = |key: &str| value.get(key).and_then(Value::as_i64);
    let fits = number("numerator") <= Some(number("denominator").unwrap_or(100));
    walk.need(fits, "numerator is larger than denominator");
}

pub(super) fn percent_or_fraction(value: &Value, walk: &mut Check) {
    walk.need(!(has(value, "percent") && has(value, "fraction")), "percent and fraction exclude each other");
}

pub(super) fn path_fits_its_type(value: &Value, walk: &mut Check) {
    let kind = text(value, "type", "");
    goes_with(value, kind, "ReplaceFullPath", "replaceFullPath", walk);
    goes_with(value, kind, "ReplacePrefixMatch", "replacePrefixMatch", walk);
}

pub(super) fn star_is_alone(value: &Value, walk: &mut Check) {
    let list = elements(value);
    walk.need(list.len() < 2 || list.iter().all(|v| v != "*"), "\"*\" must stand alone");
}

pub(super) fn auth_fits_its_protocol(value: &Value, walk: &mut Check) {
    let protocol = text(value, "protocol", "");
    goes_with(value, protocol, "GRPC", "grpc", walk);
    goes_with(value, protocol, "HTTP", "http", walk);
}

pub(super) fn filter_fits_its_type(value: &Value, walk: &mut Check) {
    let kind = text(value, "type", "");
    for (wanted, field) in [
        ("CORS", "cors"),
        ("RequestHeaderModifier", "requestHeaderModifier"),
        ("ResponseHeaderModifier", "responseHeaderModifier"),
        ("RequestMirror", "requestMirror"),
        ("RequestRedirect", "requestRedirect"),
        ("URLRewrite", "urlRewrite"),
        ("ExtensionRef", "extensionRef"),
        ("ExternalAuth", "externalAuth"),
    ] {
        goes_with(value, kind, wanted, field, walk);
    }
}

pub(super) fn filters_come_once(value: &Value, walk: &mut Check) {
    let times = |kind: &str| elements(value).iter().filter(|f| text(f, "type", "") == kind).count();
    for kind in ["CORS", "RequestHeaderModifier", "ResponseHeaderModifier", "RequestRedirect", "URLRewrite"] {
        walk.need(times(kind) <= 1, format_args!("filter {kind} is there twice"));
    }
    walk.need(
        times("RequestRedirect") == 0 || times("URLRewrite") == 0,
        "RequestRedirect and URLRewrite exclude each other",
    );
}

pub(super) fn path_is_plain(value: &Value, walk: &mut Check) {
    if text(value, "type", "PathPrefix") == "RegularExpression" {
        return;
    }
    let path = text(value, "value", "/");
    walk.at("value", |walk| {
        walk.need(path.starts_with('/'), format_args!("{path:?} must begin with /"));
        for part in ["//", "/./", "/../", "%2f", "%2F", "#"] {
            walk.need(!path.contains(part), format_args!("{path:?} must not contain {part}"));
        }
        for end in ["/..", "/."] {
            walk.need(!path.ends_with(end), format_args!("{path:?} must not end with {end}"));
        }
        walk.need(path.is_empty() || is_path(path), format_args!("{path:?} has characters that no path has"));
    });
}

pub(super) fn session_fits_its_type(value: &Value, walk: &mut Check) {
    let kind = text(value, "type", "Cookie");
    walk.need(kind == "Cookie" || !has(value, "cookie"), "cookie is for type Cookie only");
    walk.need(kind == "Header" || !has(value, "header"), "header is for type Header only");
    let permanent = value.get("cookie").is_some_and(|c| text(c, "lifetimeType", "Session") == "Permanent");
    walk.need(!permanent || has(value, "absoluteTimeout"), "a permanent cookie needs absoluteTimeout");
}

pub(super) fn backend_timeout_is_shorter(value: &Value, walk: &mut Check) {
    let time = |key: &str| value.get(key).and_then(Value::as_str).and_then(milliseconds);
    if let (Some(backend), Some(request)) = (time("backendRequest"), time("request")) {
        walk.need(request == 0 || backend <= request, "backendRequest is longer than request");
    }
}

pub(super) fn no_backends_beside_redirect(value: &Value, walk: &mut Check) {
    let redirects = list(value, "filters").iter().any(|f| has(f, "requestRedirect"));
    walk.need(
        !redirects || count(value, "backendRefs") == 0,
        "filter RequestRedirect and backendRefs exclude each other",
    );
}

/// A prefix can be replaced only in a rule with exactly one match, of a prefix.
pub(super) fn prefix_is_replaced_where_one_matches(value: &Value, walk: &mut Check) {
    let replaces = |filter: &Value| {
        ["requestRedirect", "urlRewrite"].iter().any(|key| {
            filter.get(key).and_then(|f| f.get("path")).is_some_and(|p| text(p, "type", "") == "ReplacePrefixMatch")
        })
    };
    let backends = list(value, "backendRefs").iter().flat_map(|backend| list(backend, "filters"));
    if !list(value, "filters").iter().chain(backends).any(replaces) {
        return;
    }
    let matches = list(value, "matches");
    let prefix = |m: &Value| m.get("path").is_none_or(|p| text(p, "type", "PathPrefix") == "PathPrefix");
    let fits = !has(value, "matches") || (matches.len() == 1 && prefix(&matches[0]));
    walk.need(fits, "replacePrefixMatch needs exactly one match, of type PathPrefix");
}

pub(super) fn few_matches_in_all(value: &Value, walk: &mut Check) {
    let matches: usize = elements(value).iter().map(|rule| count(rule, "matches")).sum();
    walk.need(matches <= MOST_MATCHES, format_args!("the rules have {matches} matches, more than {MOST_MATCHES}"));
}

pub(super) fn rules_have_own_names(value: &Value, walk: &mut Check) {
    let mut seen = BTreeSet::new();
    for name in elements(value).iter().filter_map(|rule| rule.get("name").and_then(Value::as_str)) {
        walk.need(seen.insert(name), format_args!("two rules are named {name:?}"));
    }
}

pub(super) fn method_is_named(value: &Value, walk: &mut Check) {
    let (method, service) = (value.get("method").and_then(Value::as_str), value.get("service").and_then(Value::as_str));
    walk.need(method.is_some() || service.is_some(), "it must have service or method");
    if text(value, "type", "Exact") != "Exact" {
        return;
    }
    let word = |t: &str| {
        let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
        t.chars().all(letters) && !t.is_empty() && !t.starts_with(|c: char| c.is_ascii_digit())
    };
    walk.need(method.is_none_or(word), "method is not the name of a method");
    let dotted = service.is_none_or(|s| s.strip_prefix('.').unwrap_or(s).split('.').all(word));
    walk.need(dotted, "service is not the name of a service");
}

pub(super) fn no_addresses(value: &Value, walk: &mut Check) {
    for host in elements(value).iter().filter_map(Value::as_str) {
        walk.need(host.parse::<IpAddr>().is_err(), format_args!("{host} is an address, not a hostname"));
    }
}

pub(super) fn subject_fits_its_type(value: &Value, walk: &mut Check) {
    let kind = text(value, "type", "");
    goes_with(value, kind, "Hostname", "hostname", walk);
    goes_with(value, kind, "URI", "uri", walk);
}

pub(super) fn one_source_of_trust(value: &Value, walk: &mut Check) {
    let named = usize::from(count(value, "caCertificateRefs") > 0) + usize::from(has(value, "wellKnownCACertificates"));
    walk.need(named == 1, "it must have either caCertificateRefs or wellKnownCACertificates");
}
