//! The value of a patch: proto3 JSON of the patched message.

use prost_reflect::{DynamicMessage, ReflectMessage, Value as Field};

use super::Check;
use crate::{
    model::patch_value::{self, DEEPEST},
    proto::{networking::envoy_filter::ApplyTo, wkt},
};

/// Validates a patch value. A value that does not fit is an error; unknown fields and filters without configuration are
/// warnings.
pub(super) fn validate(c: &mut Check, apply_to: ApplyTo, given: &wkt::Struct) {
    if patch_value::message_name(apply_to).is_none() {
        return c.error(format_args!("applyTo {} takes no value", apply_to.as_str_name()));
    }
    let value = match patch_value::with_known_types(given) {
        Ok(value) => value,
        Err(error) => return c.error(error),
    };
    match patch_value::read(apply_to, &value, false) {
        Err(error) => c.error(error),
        Ok(message) => {
            if let Err(error) = patch_value::read(apply_to, &value, true) {
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
