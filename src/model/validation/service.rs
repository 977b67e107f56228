//! Rules for Kubernetes Services that an API server enforces: the fields that become host names, addresses and ports of proxies.
//!
//! Objects from an API server have already passed them; these rules are for objects from other sources.

use std::net::IpAddr;

use serde_json::Value;

use super::{
    Validation,
    check::{Check, Checked},
};

/// Longest label of a DNS name.
const LABEL_MAX: usize = 63;
/// A `clusterIP` that stands for no address.
const HEADLESS: &str = "None";

/// Validates a document of kind Service.
pub(super) fn admission(document: &Value) -> Validation {
    let mut c = Check::new("metadata");
    c.field("name", name(document["metadata"]["name"].as_str().unwrap_or_default()));
    c.path = "spec".to_string();
    let spec = &document["spec"];
    c.field("clusterIP", optional(&spec["clusterIP"]));
    for (field, of) in [("clusterIPs", optional as fn(&Value) -> Checked), ("externalIPs", address)] {
        c.each(field, elements(&spec[field]), |c, value| {
            if let Err(text) = of(value) {
                c.error(text);
            }
        });
    }
    c.each("ports", elements(&spec["ports"]), |c, port| c.field("port", number(&port["port"])));
    c.finish()
}

fn elements(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// RFC 1123, which newer API servers accept; older ones also demand a letter at the start.
fn name(text: &str) -> Checked {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let holds = (1..=LABEL_MAX).contains(&text.len()) && text.bytes().all(good) && !text.starts_with('-');
    if holds && !text.ends_with('-') {
        return Ok(());
    }
    Err(format!("{text:?} must be a DNS label: lower-case letters, digits and '-', at most {LABEL_MAX}"))
}

/// An address, nothing, or `None`.
fn optional(value: &Value) -> Checked {
    if value.is_null() || value == "" || value == HEADLESS { Ok(()) } else { address(value) }
}

fn address(value: &Value) -> Checked {
    let is_address = value.as_str().is_some_and(|text| text.parse::<IpAddr>().is_ok());
    if is_address { Ok(()) } else { Err(format!("{value} is not an IP address")) }
}

fn number(value: &Value) -> Checked {
    let is_port = value.as_i64().is_some_and(|number| (1..=65_535).contains(&number));
    if is_port { Ok(()) } else { Err(format!("{value} is not between 1 and 65535")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(name: &str, spec: Value) -> Vec<String> {
        admission(&json!({"metadata": {"name": name}, "spec": spec})).errors
    }

    #[test]
    fn names_addresses_and_ports() {
        let good = json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"], "externalIPs": ["192.0.2.1"],
            "ports": [{"port": 1}, {"port": 65_535}]});
        let none: [&str; 0] = [];
        for name in ["web", "a-1", "1a"] {
            assert_eq!(errors(name, good.clone()), none);
        }
        for spec in
            [json!({}), json!({"clusterIP": "None", "clusterIPs": ["None"]}), json!({"clusterIP": ""}), Value::Null]
        {
            assert_eq!(errors("web", spec), none);
        }
        for name in ["", "*", "a.b", "A", "-a", "a-", "a\n", &"a".repeat(64)] {
            assert!(errors(name, json!({}))[0].starts_with("metadata.name: "), "{name:?}");
        }
        let bad = json!({"clusterIP": "web.example", "clusterIPs": ["10.0.0.1", "10.0.0"], "externalIPs": [""],
            "ports": [{"port": 0}, {"port": 65_536}, {"port": "http"}, {}]});
        assert_eq!(
            errors("web", bad),
            [
                "spec.clusterIP: \"web.example\" is not an IP address",
                "spec.clusterIPs[1]: \"10.0.0\" is not an IP address",
                "spec.externalIPs[0]: \"\" is not an IP address",
                "spec.ports[0].port: 0 is not between 1 and 65535",
                "spec.ports[1].port: 65536 is not between 1 and 65535",
                "spec.ports[2].port: \"http\" is not between 1 and 65535",
                "spec.ports[3].port: null is not between 1 and 65535",
            ]
        );
    }
}
