//! Numbers of enums in JSON: proto3 takes any number for an enum, and one without a name would be read as the default.
//!
//! A policy with such a number could mean less than its author wrote, so Istio's messages are refused with it, as a Kubernetes
//! API server refuses them. Pure.

use std::collections::HashSet;

use prost_reflect::{DescriptorPool, Kind, MessageDescriptor};
use serde_json::Value;

/// Names of all fields of the messages in a pool that hold an enum, in both spellings.
pub(super) fn fields(pool: &DescriptorPool) -> HashSet<String> {
    let messages = pool.all_messages();
    let fields = messages.flat_map(|message| message.fields().collect::<Vec<_>>());
    let enums = fields.filter(|field| matches!(field.kind(), Kind::Enum(_)));
    enums.flat_map(|field| [field.name().to_string(), field.json_name().to_string()]).collect()
}

/// The first field of a message whose number is no value of its enum, with its path and the reason. `fields` are the names of
/// fields that hold enums.
pub(super) fn unknown(value: &Value, message: &MessageDescriptor, fields: &HashSet<String>) -> Option<String> {
    // Hardly any document has a number in such a place, and the descriptors are slow to ask.
    if may_have_one(value, fields) { in_message(value, message, "") } else { None }
}

fn may_have_one(value: &Value, fields: &HashSet<String>) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| match value {
            Value::Number(_) => fields.contains(key),
            Value::Array(list) if list.iter().any(Value::is_number) => fields.contains(key),
            value => may_have_one(value, fields),
        }),
        Value::Array(list) => list.iter().any(|value| may_have_one(value, fields)),
        _ => false,
    }
}

fn in_message(value: &Value, message: &MessageDescriptor, path: &str) -> Option<String> {
    value.as_object()?.iter().find_map(|(key, value)| {
        let field = message.get_field_by_json_name(key).or_else(|| message.get_field_by_name(key))?;
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match (field.kind(), value) {
            (Kind::Message(entry), Value::Object(map)) if field.is_map() => {
                let kind = entry.map_entry_value_field().kind();
                map.iter().find_map(|(key, value)| in_value(value, &kind, &format!("{path}.{key}")))
            }
            (kind, Value::Array(list)) => {
                list.iter().enumerate().find_map(|(i, value)| in_value(value, &kind, &format!("{path}[{i}]")))
            }
            (kind, value) => in_value(value, &kind, &path),
        }
    })
}

fn in_value(value: &Value, kind: &Kind, path: &str) -> Option<String> {
    match (kind, value) {
        (Kind::Message(message), value) => in_message(value, message, path),
        (Kind::Enum(names), Value::Number(number)) => {
            let known = number.as_i64().and_then(|n| i32::try_from(n).ok()).and_then(|n| names.get_value(n));
            let names = || names.values().map(|v| v.name().to_string()).collect::<Vec<_>>().join(", ");
            known.is_none().then(|| format!("{path}: {number} is none of {}", names()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::proto::{ProtoError, descriptor, dynamic_from_json};

    fn found(message: &str, value: Value) -> Option<String> {
        match dynamic_from_json(descriptor(message).unwrap(), &value, true) {
            Ok(_) => None,
            Err(ProtoError::UnknownValue(reason)) => Some(reason),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn numbers_without_a_name_are_found_wherever_they_stand() {
        let peers = "istio.security.v1beta1.PeerAuthentication";
        assert_eq!(found(peers, json!({"mtls": {"mode": 3}, "portLevelMtls": {"80": {"mode": "STRICT"}}})), None);
        let reason = found(peers, json!({"mtls": {"mode": 3}, "portLevelMtls": {"80": {"mode": 4}}})).unwrap();
        assert_eq!(reason, "portLevelMtls.80.mode: 4 is none of UNSET, DISABLE, PERMISSIVE, STRICT");
        let rule = "istio.networking.v1alpha3.DestinationRule";
        let reason = found(rule, json!({"host": "a", "subsets": [{"trafficPolicy": {"tls": {"mode": 9}}}]})).unwrap();
        assert!(reason.starts_with("subsets[0].trafficPolicy.tls.mode: 9 is none of DISABLE, SIMPLE"), "{reason}");
        let filter = json!({"configPatches": [{"applyTo": 2, "patch": {"operation": 1, "value": {"mode": 77}}}]});
        assert_eq!(found("istio.networking.v1alpha3.EnvoyFilter", filter), None);
    }
}
