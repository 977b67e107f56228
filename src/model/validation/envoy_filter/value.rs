//! The value of a patch: proto3 JSON of the patched message.

use prost_reflect::{DynamicMessage, ReflectMessage, Value as Field};
use serde_json::{Value, json};

use super::Check;
use crate::proto::{self, ProtoError, networking::envoy_filter::ApplyTo, wkt};

/// Maximum nesting of values.
const DEEPEST: usize = 100;

/// Validates a patch value. A value that does not fit is an error; unknown fields and filters without configuration are
/// warnings.
pub(super) fn validate(c: &mut Check, apply_to: ApplyTo, given: &wkt::Struct) {
    let Some(name) = message_name(apply_to) else {
        return c.error(format_args!("applyTo {} takes no value", apply_to.as_str_name()));
    };
    let mut value = proto::struct_to_json(given);
    if let Err(error) = hide_unknown_types(&mut value, 0) {
        return c.error(error);
    }
    match read(name, &value, false) {
        Err(error) => c.error(error),
        Ok(message) => {
            if let Err(error) = read(name, &value, true) {
                c.warn(error);
            }
            let mut missing = Vec::new();
            without_configuration(&message, &mut missing, 0);
            if !missing.is_empty() {
                c.warn(format_args!("filters without typed_config rely on their name alone: {}", missing.join(", ")));
            }
        }
    }
}

fn read(name: &str, value: &Value, strict: bool) -> Result<DynamicMessage, ProtoError> {
    let unknown = || ProtoError::UnknownMessage(name.to_string());
    proto::dynamic_from_json(proto::pool().get_message_by_name(name).ok_or_else(unknown)?, value, strict)
}

const fn message_name(apply_to: ApplyTo) -> Option<&'static str> {
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

/// Replaces Envoy extensions without a descriptor in this build by an empty `Struct`: they cannot be validated, and refusing
/// them would disable Envoy features. Other unknown types are refused.
fn hide_unknown_types(value: &mut Value, depth: usize) -> Result<(), String> {
    if depth > DEEPEST {
        return Err("nested too deeply".to_string());
    }
    let url = value.get("@type").and_then(Value::as_str).map(str::to_string);
    if let Some(url) = url {
        let name = url.rsplit('/').next().unwrap_or_default();
        if proto::pool().get_message_by_name(name).is_none() {
            let of_envoy = ["envoy.", "udpa.", "xds.", "istio."].iter().any(|root| name.starts_with(root));
            if name.contains(".v2.") {
                return Err(format!("type {url} is not known; it is of the v2 API, use its v3 form"));
            }
            if !of_envoy {
                return Err(format!("type {url} is not known"));
            }
            *value = json!({"@type": "type.googleapis.com/google.protobuf.Struct", "value": {}});
            return Ok(());
        }
    }
    match value {
        Value::Object(fields) => fields.values_mut().try_for_each(|v| hide_unknown_types(v, depth + 1)),
        Value::Array(items) => items.iter_mut().try_for_each(|v| hide_unknown_types(v, depth + 1)),
        _ => Ok(()),
    }
}

/// Collects messages that could have a configuration and have none. Lists are skipped, as in Istio.
fn without_configuration(message: &DynamicMessage, missing: &mut Vec<String>, depth: usize) {
    if depth > DEEPEST {
        return;
    }
    let descriptor = message.descriptor();
    for field in descriptor.fields().filter(|f| message.has_field(f)) {
        if let Field::Message(inner) = &*message.get_field(&field) {
            without_configuration(inner, missing, depth + 1);
        }
    }
    let has = |name: &str| descriptor.get_field_by_name(name).is_some_and(|f| message.has_field(&f));
    if descriptor.get_field_by_name("typed_config").is_some() && !has("typed_config") && !has("config_discovery") {
        let name = descriptor.get_field_by_name("name").map(|f| message.get_field(&f).into_owned());
        missing.push(name.and_then(|n| n.as_str().map(str::to_string)).unwrap_or_default());
    }
}
