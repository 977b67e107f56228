//! The value of an EnvoyFilter's patch: proto3 JSON of the patched message, whose type follows from `applyTo`.
//!
//! Extensions that this build has no descriptor for stay as they were written, inside a `TypedStruct`, which Envoy reads by its
//! own descriptors. That is possible where a field takes the configuration of an extension, and nowhere else.

use prost_reflect::DynamicMessage;
use serde_json::{Map, Value};

use crate::proto::{self, ProtoError, networking::envoy_filter::ApplyTo, wkt};

/// Maximum nesting of values.
pub const DEEPEST: usize = 100;

/// The type that carries the configuration of an extension as JSON.
pub const TYPED_STRUCT: &str = "xds.type.v3.TypedStruct";

/// Roots of the names of Envoy's own types.
const OF_ENVOY: [&str; 4] = ["envoy.", "udpa.", "xds.", "istio."];

/// Fields that hold the configuration of one extension.
const OF_EXTENSION: [&str; 2] = ["typed_config", "typedConfig"];

/// Fields that hold configurations of extensions by name.
const OF_EXTENSIONS: [&str; 4] = [
    "typed_per_filter_config",
    "typedPerFilterConfig",
    "typed_extension_protocol_options",
    "typedExtensionProtocolOptions",
];

/// The full name of the message that patches of this target hold; `None` for the value that stands for no target.
#[must_use]
pub const fn message_name(apply_to: ApplyTo) -> Option<&'static str> {
    Some(match apply_to {
        ApplyTo::Cluster => "envoy.config.cluster.v3.Cluster",
        ApplyTo::Listener => "envoy.config.listener.v3.Listener",
        ApplyTo::RouteConfiguration => "envoy.config.route.v3.RouteConfiguration",
        ApplyTo::FilterChain => "envoy.config.listener.v3.FilterChain",
        ApplyTo::HttpFilter => "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter",
        ApplyTo::NetworkFilter => "envoy.config.listener.v3.Filter",
        ApplyTo::VirtualHost => "envoy.config.route.v3.VirtualHost",
        ApplyTo::HttpRoute => "envoy.config.route.v3.Route",
        ApplyTo::ExtensionConfig => "envoy.config.core.v3.TypedExtensionConfig",
        ApplyTo::Bootstrap => "envoy.config.bootstrap.v3.Bootstrap",
        ApplyTo::ListenerFilter => "envoy.config.listener.v3.ListenerFilter",
        ApplyTo::Invalid => return None,
    })
}

/// The JSON of a value in which every type is known: extensions of Envoy without a descriptor are wrapped.
///
/// # Errors
/// The type that is not known and that nothing can carry, or the nesting.
pub fn with_known_types(given: &wkt::Struct) -> Result<Value, String> {
    let mut value = proto::struct_to_json(given);
    wrap_unknown(&mut value, Place::Other, 0)?;
    Ok(value)
}

/// The reverse of [`with_known_types`], for the JSON that an Envoy reads: not each of its extensions takes a `TypedStruct`.
pub fn unwrap_known_types(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let is_wrapped =
                fields.get("@type").and_then(Value::as_str).is_some_and(|url| type_of(url) == TYPED_STRUCT);
            if let Some(url) = fields.get("type_url").filter(|_| is_wrapped).cloned() {
                let carried = fields.get_mut("value").map(Value::take).unwrap_or_default();
                let Value::Object(carried) = carried else { return };
                *fields = std::iter::once(("@type".to_string(), url)).chain(carried).collect();
            }
            fields.values_mut().for_each(unwrap_known_types);
        }
        Value::Array(items) => items.iter_mut().for_each(unwrap_known_types),
        _ => {}
    }
}

/// Reads a value as the message that patches of this target hold. Unknown fields are ignored unless `strict`.
///
/// # Errors
/// The reason why the value does not fit.
pub fn read(apply_to: ApplyTo, value: &Value, strict: bool) -> Result<DynamicMessage, ProtoError> {
    let name = message_name(apply_to).unwrap_or_default();
    let unknown = || ProtoError::UnknownMessage(name.to_string());
    proto::dynamic_from_json(proto::pool().get_message_by_name(name).ok_or_else(unknown)?, value, strict)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The configuration of an extension.
    Extension,
    /// A map of them.
    Extensions,
    Other,
}

impl Place {
    fn below(self, field: &str) -> Self {
        match self {
            Self::Extensions => Self::Extension,
            _ if OF_EXTENSION.contains(&field) => Self::Extension,
            _ if OF_EXTENSIONS.contains(&field) => Self::Extensions,
            _ => Self::Other,
        }
    }
}

fn wrap_unknown(value: &mut Value, place: Place, depth: usize) -> Result<(), String> {
    if depth > DEEPEST {
        return Err("nested too deeply".to_string());
    }
    match value {
        Value::Object(fields) => {
            let url = fields.get("@type").and_then(Value::as_str).map(str::to_string);
            if let Some(url) = url.filter(|url| proto::pool().get_message_by_name(type_of(url)).is_none()) {
                *value = wrapped(&url, fields, place)?;
                return Ok(());
            }
            fields.iter_mut().try_for_each(|(key, inner)| wrap_unknown(inner, place.below(key), depth + 1))
        }
        Value::Array(items) => items.iter_mut().try_for_each(|inner| wrap_unknown(inner, place, depth + 1)),
        _ => Ok(()),
    }
}

fn wrapped(url: &str, fields: &Map<String, Value>, place: Place) -> Result<Value, String> {
    let name = type_of(url);
    if name.contains(".v2.") {
        return Err(format!("type {url} is not known; it is of the v2 API, use its v3 form"));
    }
    if !OF_ENVOY.iter().any(|root| name.starts_with(root)) {
        return Err(format!("type {url} is not known"));
    }
    if place != Place::Extension {
        return Err(format!(
            "type {url} is not known, and only the configuration of an extension may be of such a type"
        ));
    }
    let content: Map<String, Value> =
        fields.iter().filter(|(key, _)| *key != "@type").map(|(key, inner)| (key.clone(), inner.clone())).collect();
    let mut carrier = Map::new();
    carrier.insert("@type".to_string(), Value::from(format!("type.googleapis.com/{TYPED_STRUCT}")));
    carrier.insert("type_url".to_string(), Value::from(url));
    carrier.insert("value".to_string(), Value::Object(content));
    Ok(Value::Object(carrier))
}

fn type_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known(value: Value) -> Result<Value, String> {
        with_known_types(&proto::json_to_struct(&value).unwrap_or_default())
    }

    #[test]
    fn unknown_extensions_are_carried_where_envoy_reads_extensions() {
        let url = "type.googleapis.com/envoy.extensions.filters.http.future.v3.Future";
        let filter = json!({"name": "f", "typed_config": {"@type": url, "a": {"b": 1}}});
        let expected = json!({"name": "f", "typed_config": {
            "@type": "type.googleapis.com/xds.type.v3.TypedStruct", "type_url": url, "value": {"a": {"b": 1}},
        }});
        assert_eq!(known(filter.clone()), Ok(expected.clone()));
        assert!(read(ApplyTo::HttpFilter, &expected, true).is_ok(), "Envoy's message holds it");
        let mut again = json!([expected, {"typed_config": {"@type": "type.googleapis.com/xds.type.v3.TypedStruct"}}]);
        let other = again[1].clone();
        unwrap_known_types(&mut again);
        assert_eq!(again, json!([filter, other]));
        let per_filter = json!({"typed_per_filter_config": {"f": {"@type": url}}});
        assert!(known(per_filter).is_ok());
        let elsewhere = json!({"metadata": {"typed_filter_metadata": {"f": {"@type": url}}}});
        assert!(known(elsewhere).unwrap_err().contains(url));
    }

    #[test]
    fn types_of_others_and_of_old_apis_are_refused_by_name() {
        for (name, reason) in [("not.a.Type", "not known"), ("envoy.config.filter.http.lua.v2.Lua", "v2 API")] {
            let url = format!("type.googleapis.com/{name}");
            let error = known(json!({"typed_config": {"@type": url}})).unwrap_err();
            assert!(error.contains(name) && error.contains(reason), "{error}");
        }
        let mut deep = json!({});
        for _ in 0..200 {
            deep = json!({ "a": deep });
        }
        assert!(known(deep).is_err());
    }
}
