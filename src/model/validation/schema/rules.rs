//! The patterns and the CEL rules of Istio's definitions: each with its words and its test.

use serde_json::{Map, Value};

use super::Rule;
use crate::{model::validation::uri, proto::go_duration};

pub(super) const GROUP: Rule = ("a DNS name in lower case, or empty", |v| {
    text(v).is_empty()
        || text(v).split('.').all(|label| is_word(label, |b| b.is_ascii_lowercase() || b.is_ascii_digit()))
});
pub(super) const KIND: Rule = ("a kind: letters, digits and '-', beginning with a letter", |v| {
    is_word(text(v), |b| b.is_ascii_alphanumeric()) && text(v).starts_with(|c: char| c.is_ascii_alphabetic())
});
pub(super) const SHA256: Rule = ("64 hexadecimal digits in lower case, or empty", |v| {
    let digits = text(v).bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    text(v).is_empty() || (text(v).len() == 64 && digits)
});
pub(super) const HEADER: Rule = ("the name of a header: letters, digits, '-' and '_'", |v| {
    !text(v).is_empty() && text(v).bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
});

pub(super) const LONG_ENOUGH: Rule = ("it must be a duration of at least 1ms", |v| {
    go_duration(text(v)).is_some_and(|duration| duration >= std::time::Duration::from_millis(1))
});
pub(super) const OWN_NAMESPACE: Rule = ("an object of another namespace cannot be referred to", |v| text(v).is_empty());
pub(super) const NO_WILDCARD: Rule = ("a wildcard is not allowed", |v| !text(v).contains('*'));
pub(super) const NO_WILDCARD_KEYS: Rule =
    ("a wildcard is not allowed in a key", |v| keys(v).all(|key| !key.contains('*')));
pub(super) const NO_EMPTY_KEYS: Rule = ("a key must not be empty", |v| keys(v).all(|key| !key.is_empty()));
pub(super) const PORT: Rule = ("the port must be in 1..65535", |v| v.as_f64().is_some_and(|n| n > 0.0 && n <= 65535.0));
pub(super) const PORT_KEYS: Rule = ("ports must be in 1..65535", |v| {
    keys(v).all(|key| key.parse::<i64>().is_ok_and(|port| (1..=65535).contains(&port)))
});
pub(super) const PORT_NAMES: Rule = ("names of ports must be DNS labels of less than 63 characters", |v| {
    keys(v).all(|key| key.chars().count() < 63 && is_word(key, |b| b.is_ascii_alphanumeric()))
});
pub(super) const NO_WILDCARD_HOST: Rule = ("the host '*' is not allowed", |v| text(v) != "*");
pub(super) const NUMBERS_DIFFER: Rule = ("a number is there twice", |v| {
    let numbers: Vec<Option<f64>> = list(v).iter().map(|port| port.get("number").and_then(Value::as_f64)).collect();
    numbers.iter().enumerate().all(|(i, number)| !numbers[..i].contains(number))
});
pub(super) const SOCKET_PATH: Rule = ("the path of a socket must be absolute, or begin with '@'", |v| {
    text(v).strip_prefix(UNIX).is_none_or(|path| path.starts_with(['/', '@']))
});
pub(super) const NO_FOLDER: Rule = ("a socket is no folder", |v| !text(v).starts_with(UNIX) || !text(v).ends_with('/'));
pub(super) const KNOWN_PROBE_SCHEME: Rule =
    ("the scheme must be HTTP or HTTPS", |v| matches!(text(v), "" | "HTTP" | "HTTPS"));
pub(super) const IMAGE_URL: Rule = ("the URL must have one of the schemes http, https, file and oci, or none", |v| {
    let known = |scheme: &str| matches!(scheme, "" | "http" | "https" | "file" | "oci");
    match uri::of_request(text(v)) {
        Ok(uri) => known(&uri.scheme),
        Err(_) => uri::of_request(&format!("http://{}", text(v))).is_ok_and(|uri| known(&uri.scheme)),
    }
});
pub(super) const WEB_URL: Rule = ("the URL must begin with http:// or https://", |v| {
    uri::of_request(text(v)).is_ok_and(|uri| matches!(uri.scheme.as_str(), "http" | "https"))
});

pub(super) const ONE_TARGET: Rule = ("only one of selector, targetRef and targetRefs may be set", |v| {
    set(v, &["selector", "targetRef", "targetRefs"]) < 2
});
pub(super) const ONE_WORKLOAD_TARGET: Rule =
    ("only one of workloadSelector and targetRefs may be set", |v| set(v, &["workloadSelector", "targetRefs"]) < 2);
pub(super) const WASM_OR_LUA: Rule = ("exactly one of wasm and lua must be set", |v| set(v, &["wasm", "lua"]) == 1);
pub(super) const VALUE_INLINE: Rule =
    ("value may be set only if valueFrom is INLINE", |v| field(v, "valueFrom") != "HOST" || !has(v, "value"));
pub(super) const WAYPOINT_MATCH: Rule = ("waypoint is for context WAYPOINT alone, which needs it", |v| {
    has(v, "waypoint") == (field(v, "context") == "WAYPOINT")
});
pub(super) const ONE_OF_NAMES_AND_LIST: Rule = ("only one of credentialNames and tlsCertificates may be set", |v| {
    set(v, &["credentialNames", "tlsCertificates"]) < 2
});
pub(super) const ONE_OF_NAME_AND_NAMES: Rule = ("only one of credentialName and credentialNames may be set", |v| {
    set(v, &["credentialName", "credentialNames"]) < 2
});
pub(super) const SELECTOR_OR_ENDPOINTS: Rule =
    ("only one of workloadSelector and endpoints may be set", |v| set(v, &["workloadSelector", "endpoints"]) < 2);
pub(super) const NO_BLOCK_OVER_DNS: Rule = ("CIDR blocks are for the resolutions NONE and STATIC alone", |v| {
    let blocks = v.get("addresses").is_some_and(|list_of| list(list_of).iter().any(|a| text(a).contains('/')));
    !blocks || matches!(field(v, "resolution"), "" | "NONE" | "STATIC")
});
pub(super) const NO_ENDPOINTS_WITHOUT_RESOLUTION: Rule = ("resolution NONE cannot have endpoints", |v| {
    let none = !has(v, "resolution") || field(v, "resolution") == "NONE";
    !none || !has(v, "endpoints")
});
pub(super) const ONE_ENDPOINT_IN_TURN: Rule = ("resolution DNS_ROUND_ROBIN can have one endpoint at most", |v| {
    field(v, "resolution") != "DNS_ROUND_ROBIN" || v.get("endpoints").is_none_or(|endpoints| list(endpoints).len() < 2)
});
pub(super) const ADDRESS: Rule = ("address or network is required", |v| has(v, "address") || has(v, "network"));
pub(super) const NO_PORTS_OF_SOCKET: Rule =
    ("a socket has no ports", |v| !field(v, "address").starts_with(UNIX) || !has(v, "ports"));
pub(super) const ACCOUNTS_ALONE: Rule = ("serviceAccounts cannot stand beside namespaces or principals", |v| {
    set(v, &["serviceAccounts", "notServiceAccounts"]) == 0
        || set(v, &["principals", "notPrincipals", "namespaces", "notNamespaces"]) == 0
});
pub(super) const PORTS_OF_SELECTED: Rule = ("portLevelMtls needs a selector with labels", |v| {
    let labels = v.get("selector").and_then(|selector| selector.get("matchLabels")).and_then(Value::as_object);
    !has(v, "portLevelMtls") || labels.is_some_and(|labels| !labels.is_empty())
});
pub(super) const ONE_KEY_SET: Rule =
    ("only one of jwks and jwksUri may be set", |v| set(v, &["jwks", "jwksUri", "jwks_uri"]) < 2);
pub(super) const TAG_VALUE: Rule = ("value must be set if the operation is UPSERT", |v| {
    field(v, "operation") != "UPSERT" || !field(v, "value").is_empty()
});
pub(super) const NO_TAG_VALUE: Rule =
    ("value must not be set if the operation is REMOVE", |v| field(v, "operation") != "REMOVE" || !has(v, "value"));

/// The beginning of the address of a Unix domain socket.
const UNIX: &str = "unix://";

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn field<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).map(text).unwrap_or_default()
}

fn has(value: &Value, name: &str) -> bool {
    value.get(name).is_some_and(|v| !v.is_null())
}

/// The number of these fields that are set.
fn set(value: &Value, names: &[&str]) -> usize {
    names.iter().filter(|name| has(value, name)).count()
}

fn keys(value: &Value) -> impl Iterator<Item = &str> {
    value.as_object().into_iter().flat_map(Map::keys).map(String::as_str)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Whether a word has such characters and '-', which stands at neither end.
fn is_word(word: &str, is: impl Fn(u8) -> bool) -> bool {
    let bytes = word.as_bytes();
    let ends = bytes.first().is_some_and(|b| is(*b)) && bytes.last().is_some_and(|b| is(*b));
    ends && bytes.iter().all(|b| is(*b) || *b == b'-')
}
