//! The normal form in which two sets of resources are compared: types of Istio's Envoy alone are dropped, sets are sorted.
//! The rules are those of `normal-form.yaml` beside the recordings.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64;

const DROPPED_HTTP: &[&str] = &[
    "istio.metadata_exchange",
    "waypoint_downstream_peer_metadata",
    "waypoint_upstream_peer_metadata",
    "istio.alpn",
    "istio.stats",
    "istio_authn",
];
const DROPPED_NETWORK: &[&str] = &["istio.metadata_exchange", "istio.stats"];
const DROPPED_STATE: &[&str] = &["io.istio.connect_authority", "io.istio.peer_principal", "io.istio.local_principal"];
const SETS: &[&str] = &[
    "virtualHosts",
    "domains",
    "filterChains",
    "serverNames",
    "prefixRanges",
    "sourcePrefixRanges",
    "headers",
    "queryParameters",
    "matchTypedSubjectAltNames",
    "lbEndpoints",
    "endpoints",
    "clusters",
    "accessLog",
    "customTags",
    "permissions",
    "principals",
    "rules",
    "ids",
    "requestHeadersToAdd",
    "responseHeadersToAdd",
    "requestHeadersToRemove",
    "responseHeadersToRemove",
    "ips",
];

/// Hosts of ServiceEntries with more than one address: which of them shows as a domain varies in Istio.
pub type MultiAddress = BTreeSet<String>;

/// The normal form of a value found under `field`.
pub fn normal(value: &Value, field: Option<&str>, multi: &MultiAddress) -> Value {
    match value {
        Value::Object(map) => Value::Object(object(map, multi)),
        Value::Array(list) => {
            let list: Vec<Value> = list.iter().map(|v| normal(v, None, multi)).collect();
            Value::Array(sorted(field, list))
        }
        Value::Number(n) => n.as_f64().map_or(Value::Null, Value::from),
        other => other.clone(),
    }
}

fn object(map: &Map<String, Value>, multi: &MultiAddress) -> Map<String, Value> {
    let mut out = Map::new();
    for (key, value) in map {
        let value = match (key.as_str(), value) {
            ("filters", Value::Array(list)) => without(list, "name", DROPPED_NETWORK),
            ("httpFilters", Value::Array(list)) => without(list, "name", DROPPED_HTTP),
            ("onNewConnection" | "onRequestHeaders" | "onDownstreamTlsHandshake", Value::Array(list)) => {
                without(list, "objectKey", DROPPED_STATE)
            }
            ("filterMetadata", Value::Object(m)) => {
                Value::Object(m.iter().filter(|(k, _)| *k != "istio").map(|(k, v)| (k.clone(), v.clone())).collect())
            }
            // Load is reported to this server beside what Istio has.
            ("lrsServer", v) if *v == serde_json::json!({"self": {}}) => continue,
            ("sdsConfig", v) if v.to_string().contains("sds-grpc") => Value::from("agent"),
            ("domains", Value::Array(list)) if is_multi(map, multi) => {
                list.iter().filter(|d| !is_address(d.as_str().unwrap_or_default())).cloned().collect()
            }
            (_, v) => v.clone(),
        };
        let value = normal(&value, Some(key), multi);
        let empty = value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty);
        if empty && matches!(key.as_str(), "filters" | "httpFilters" | "filterMetadata" | "metadata" | "keyValues") {
            continue;
        }
        out.insert(key.clone(), value);
    }
    out.sort_keys();
    out
}

fn without(list: &[Value], key: &str, dropped: &[&str]) -> Value {
    list.iter().filter(|v| !dropped.contains(&v[key].as_str().unwrap_or_default())).cloned().collect()
}

fn is_multi(map: &Map<String, Value>, multi: &MultiAddress) -> bool {
    let name = map.get("name").and_then(Value::as_str).unwrap_or_default();
    name.rsplit_once(':').is_some_and(|(host, _)| multi.contains(host))
}

fn is_address(text: &str) -> bool {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<std::net::IpAddr>().is_ok() || bare.parse::<ipnet::IpNet>().is_ok()
}

fn sorted(field: Option<&str>, mut list: Vec<Value>) -> Vec<Value> {
    let Some(field) = field.filter(|f| SETS.contains(f)) else { return list };
    let all = |key: &str| list.iter().all(|v| v.get(key).is_some());
    match field {
        "endpoints" if !all("lbEndpoints") => return list,
        "clusters" if !all("weight") => return list,
        "rules" | "ids" if !list.iter().all(Value::is_object) => return list,
        "endpoints" => list.sort_by_cached_key(|v| (v["priority"].to_string(), v["locality"].to_string())),
        "clusters" => list.sort_by_cached_key(|v| v["name"].to_string()),
        _ => list.sort_by_cached_key(Value::to_string),
    }
    list
}

/// The first place where two values differ, with both sides cut short.
pub fn first_difference(path: &str, expected: &Value, actual: &Value) -> Option<String> {
    let say = |e: &Value, a: &Value| Some(format!("{path}: expected {} / got {}", short(e), short(a)));
    match (expected, actual) {
        (Value::Object(e), Value::Object(a)) => {
            let keys: BTreeSet<&String> = e.keys().chain(a.keys()).collect();
            keys.into_iter().find_map(|k| match (e.get(k), a.get(k)) {
                (Some(e), Some(a)) => first_difference(&format!("{path}.{k}"), e, a),
                (e, a) => {
                    let none = Value::from("(absent)");
                    Some(format!(
                        "{path}.{k}: expected {} / got {}",
                        short(e.unwrap_or(&none)),
                        short(a.unwrap_or(&none))
                    ))
                }
            })
        }
        (Value::Array(e), Value::Array(a)) => {
            let inner =
                e.iter().zip(a).enumerate().find_map(|(i, (e, a))| first_difference(&format!("{path}[{i}]"), e, a));
            inner.or_else(|| {
                (e.len() != a.len()).then(|| {
                    let extra = if e.len() > a.len() { &e[a.len()] } else { &a[e.len()] };
                    format!("{path}: expected {} elements, got {}; first extra {}", e.len(), a.len(), short(extra))
                })
            })
        }
        (e, a) if e == a => None,
        (e, a) => say(e, a),
    }
}

/// The value as text; a long one is cut, and a hash stands for the rest.
fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(120) {
        Some((end, _)) => format!("{}… #{:08x}", &text[..end], xxh3_64(text.as_bytes()) as u32),
        None => text,
    }
}

/// The form in which resources are compared.
#[derive(Clone, Copy)]
pub enum Form<'a> {
    /// Of conversations with istiod: without the types of Istio's Envoy alone, sets sorted.
    Sent(&'a MultiAddress),
    /// Of generators: as it is, but for the order of virtual hosts.
    Generated,
}

impl Form<'_> {
    fn of(self, value: &Value) -> Value {
        match self {
            Self::Sent(multi) => normal(value, None, multi),
            Self::Generated => generated(value, None),
        }
    }
}

fn generated(value: &Value, field: Option<&str>) -> Value {
    match value {
        Value::Object(map) => {
            // Load is reported to this server beside what Istio has.
            let own = |key: &str, value: &Value| key == "lrsServer" && *value == serde_json::json!({"self": {}});
            let kept = map.iter().filter(|(key, value)| !own(key, value));
            Value::Object(kept.map(|(key, value)| (key.clone(), generated(value, Some(key)))).collect())
        }
        Value::Array(list) => {
            let mut list: Vec<Value> = list.iter().map(|v| generated(v, None)).collect();
            if field == Some("virtualHosts") {
                list.sort_by_cached_key(|host| host["name"].to_string());
            }
            Value::Array(list)
        }
        Value::Number(n) => n.as_f64().map_or(Value::Null, Value::from),
        // The recordings write `default` where an object had no namespace.
        Value::String(text) if field == Some("config") => text.replace("/namespaces//", "/namespaces/default/").into(),
        other => other.clone(),
    }
}

/// Compares two lists of named resources: names, then each resource. One line per resource that differs.
pub fn compare(kind: &str, name_field: &str, expected: &Value, actual: &[Value], form: Form<'_>) -> Vec<String> {
    let expected: Vec<Value> = expected.as_array().cloned().unwrap_or_default();
    let name = |v: &Value| v[name_field].as_str().unwrap_or_default().to_string();
    let mut lines = Vec::new();
    let wanted: BTreeSet<String> = expected.iter().map(name).collect();
    let got: BTreeSet<String> = actual.iter().map(name).collect();
    for missing in wanted.difference(&got) {
        lines.push(format!("{kind}: missing {missing}"));
    }
    for extra in got.difference(&wanted) {
        lines.push(format!("{kind}: too many {extra}"));
    }
    let count = |list: &[Value], of: &str| list.iter().filter(|v| name(v) == of).count();
    for twice in got.intersection(&wanted).filter(|n| count(actual, n) != count(&expected, n)) {
        lines.push(format!(
            "{kind} {twice}: expected {} of the name / got {}",
            count(&expected, twice),
            count(actual, twice)
        ));
    }
    for (at, e) in expected.iter().enumerate() {
        let e_name = name(e);
        // Of several with one name, each is compared with the one in its place.
        let nth = count(&expected[..at], &e_name);
        if let Some(a) = actual.iter().filter(|a| name(a) == e_name).nth(nth) {
            let (e, a) = (form.of(e), form.of(a));
            lines.extend(first_difference(&format!("{kind} {e_name}"), &e, &a));
        }
    }
    lines
}
