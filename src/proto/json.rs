//! Conversion from and to proto3 JSON, through the descriptor pool.

use std::{collections::HashSet, sync::LazyLock, time::Duration};

use prost::{Message, Name};
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, SerializeOptions,
};
use serde_json::Value;

use super::enum_numbers;

/// The reason a value cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ProtoError {
    /// The built-in descriptor set lacks this message, which is a mistake of the build.
    #[error("no descriptor for message {0}")]
    UnknownMessage(String),
    /// The JSON does not fit the message; the text names the field.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A number is no value of its enum; the text names the field.
    #[error("{0}")]
    UnknownValue(String),
    /// The bytes do not decode as the message.
    #[error("{0}")]
    Wire(#[from] prost::DecodeError),
}

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    // The build of the same crate writes the bytes: a failure here would fail the first test.
    DescriptorPool::decode(pilothouse_proto::DESCRIPTORS).unwrap_or_else(|_| DescriptorPool::new())
});

/// Istio's messages and their imports, in a pool of their own: decoding all of Envoy's takes longer than reading a thousand
/// objects, and reading objects needs none of them.
static ISTIO_POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(pilothouse_proto::ISTIO_DESCRIPTORS).unwrap_or_else(|_| DescriptorPool::new())
});

/// Names of the fields of Istio's messages that hold enums.
static ISTIO_ENUMS: LazyLock<HashSet<String>> = LazyLock::new(|| enum_numbers::fields(&ISTIO_POOL));

/// The descriptor of the message with this full name.
pub fn descriptor(name: &str) -> Option<MessageDescriptor> {
    let pool = if name.starts_with("istio.") { &ISTIO_POOL } else { &POOL };
    pool.get_message_by_name(name)
}

/// The pool of all messages in this build, Envoy's and Istio's.
pub fn pool() -> &'static DescriptorPool {
    &POOL
}

/// Decodes proto3 JSON. Unknown fields are ignored unless `strict`.
///
/// # Errors
/// As [`dynamic_from_json`].
pub fn from_json<M: Message + Name + Default>(value: &Value, strict: bool) -> Result<M, ProtoError> {
    let name = M::full_name();
    let descriptor = descriptor(&name).ok_or(ProtoError::UnknownMessage(name))?;
    let message = dynamic_from_json(descriptor, value, strict)?;
    Ok(M::decode(message.encode_to_vec().as_slice())?)
}

/// As [`from_json`], for a message known only by its descriptor.
///
/// # Errors
/// [`ProtoError::Json`] with the path and the reason when a value does not fit, [`ProtoError::UnknownValue`] for a number that
/// an enum of Istio does not have.
pub fn dynamic_from_json(
    descriptor: MessageDescriptor,
    value: &Value,
    strict: bool,
) -> Result<DynamicMessage, ProtoError> {
    let of_istio = descriptor.full_name().starts_with("istio.");
    if let Some(reason) = of_istio.then(|| enum_numbers::unknown(value, &descriptor, &ISTIO_ENUMS)).flatten() {
        return Err(ProtoError::UnknownValue(reason));
    }
    let options = DeserializeOptions::new().deny_unknown_fields(strict);
    match DynamicMessage::deserialize_with_options(descriptor.clone(), value, &options) {
        Ok(message) => Ok(message),
        Err(error) if error.to_string().contains("duration") => {
            let mut value = value.clone();
            plain_durations(&mut value, &descriptor, 0);
            Ok(DynamicMessage::deserialize_with_options(descriptor, &value, &options)?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Rewrites durations in place: Istio accepts Go's form (`100ms`, `1m30s`), proto3 JSON only seconds.
fn plain_durations(value: &mut Value, message: &MessageDescriptor, depth: usize) {
    const DEEPEST: usize = 64;
    let Some(object) = value.as_object_mut().filter(|_| depth < DEEPEST) else { return };
    let packed = object.get("@type").filter(|_| message.full_name() == "google.protobuf.Any").and_then(Value::as_str);
    let packed = packed.and_then(|url| pool().get_message_by_name(url.rsplit('/').next().unwrap_or_default()));
    let message = packed.as_ref().unwrap_or(message);
    for (key, value) in object.iter_mut() {
        let field = message.get_field_by_json_name(key).or_else(|| message.get_field_by_name(key));
        let Some(Kind::Message(inner)) = field.as_ref().map(FieldDescriptor::kind) else { continue };
        let is_map = field.as_ref().is_some_and(FieldDescriptor::is_map);
        let inner = match is_map.then(|| inner.map_entry_value_field().kind()) {
            Some(Kind::Message(of_map)) => of_map,
            Some(_) => continue,
            None => inner,
        };
        let each: Vec<&mut Value> = match value {
            Value::Array(list) => list.iter_mut().collect(),
            Value::Object(map) if is_map => map.values_mut().collect(),
            one => vec![one],
        };
        for value in each {
            if inner.full_name() != "google.protobuf.Duration" {
                plain_durations(value, &inner, depth + 1);
            } else if let Some(duration) = value.as_str().and_then(parse_duration) {
                let (sign, d) = duration;
                *value = Value::from(format!("{sign}{}.{:09}s", d.as_secs(), d.subsec_nanos()));
            }
        }
    }
}

/// Parses Go's duration with its sign, `""` or `"-"`.
fn parse_duration(text: &str) -> Option<(&'static str, Duration)> {
    match text.strip_prefix('-') {
        Some(rest) => Some(("-", go_duration(rest)?)),
        None => Some(("", go_duration(text)?)),
    }
}

/// Parses a duration in Go's form (`1h2m3.5s`, `100ms`, `0`), without a sign.
#[must_use]
pub fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut total = 0u64;
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number = &rest[..digits];
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "h" => 3_600_000_000_000,
            "m" => 60_000_000_000,
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" | "µs" | "μs" => 1_000,
            "ns" => 1,
            _ => return None,
        };
        total = total.checked_add(nanoseconds(number, unit)?)?;
        parts += 1;
        rest = &rest[end..];
    }
    // The longest in Go.
    (parts > 0 && i64::try_from(total).is_ok()).then(|| Duration::from_nanos(total))
}

/// The nanoseconds of a decimal number of units of so many nanoseconds; a part of a nanosecond is cut off.
fn nanoseconds(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.checked_mul(unit)? };
    // Further digits are less than a nanosecond of an hour.
    let (mut part, mut scale) = (0u64, 1u64);
    for digit in fraction.bytes().take(15) {
        part = part * 10 + u64::from(digit - b'0');
        scale *= 10;
    }
    let part = u128::from(part) * u128::from(unit) / u128::from(scale);
    whole.checked_add(u64::try_from(part).ok()?)
}

/// Encodes a message as proto3 JSON: lowerCamelCase, default values omitted, `Any` expanded.
///
/// # Errors
/// [`ProtoError`] when an `Any` has a type that this build does not know.
pub fn to_json<M: Message + Name>(message: &M) -> Result<Value, ProtoError> {
    serialized(message, &SerializeOptions::new())
}

/// As [`to_json`], with the names of the fields as the proto files have them. Whole numbers are integers, also those of a
/// `google.protobuf.Struct`: Envoy reads `7.0` in a layer of its runtime as no integer.
///
/// # Errors
/// As [`to_json`].
pub fn to_json_of_fields<M: Message + Name>(message: &M) -> Result<Value, ProtoError> {
    let mut value = serialized(message, &SerializeOptions::new().use_proto_field_name(true))?;
    whole_numbers(&mut value);
    Ok(value)
}

fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().filter(|_| number.is_f64()).and_then(whole) {
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// The integer that a double is, within those that a double tells apart.
#[allow(clippy::cast_possible_truncation, reason = "the range was checked")]
fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64)
}

fn serialized<M: Message + Name>(message: &M, options: &SerializeOptions) -> Result<Value, ProtoError> {
    let name = M::full_name();
    let descriptor = descriptor(&name).ok_or(ProtoError::UnknownMessage(name))?;
    let dynamic = DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice())?;
    Ok(dynamic.serialize_with_options(serde_json::value::Serializer, options)?)
}

/// Converts a `google.protobuf.Struct` to JSON.
#[must_use]
pub fn struct_to_json(value: &prost_types::Struct) -> Value {
    Value::Object(value.fields.iter().map(|(k, v)| (k.clone(), value_to_json(v))).collect())
}

/// Converts a `google.protobuf.Value` to JSON. Whole numbers become integers.
#[must_use]
pub fn value_to_json(value: &prost_types::Value) -> Value {
    use prost_types::value::Kind;
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::NumberValue(n)) => whole(*n).map_or_else(|| Value::from(*n), Value::from),
        Some(Kind::StringValue(s)) => Value::from(s.as_str()),
        Some(Kind::BoolValue(b)) => Value::from(*b),
        Some(Kind::StructValue(s)) => struct_to_json(s),
        Some(Kind::ListValue(l)) => Value::Array(l.values.iter().map(value_to_json).collect()),
    }
}

/// Converts a JSON object to a `google.protobuf.Struct`; `None` for other values.
#[must_use]
pub fn json_to_struct(value: &Value) -> Option<prost_types::Struct> {
    let fields = value.as_object()?.iter().map(|(k, v)| (k.clone(), json_to_value(v))).collect();
    Some(prost_types::Struct { fields })
}

/// Converts a JSON value to a `google.protobuf.Value`. Numbers become doubles.
#[must_use]
pub fn json_to_value(value: &Value) -> prost_types::Value {
    use prost_types::value::Kind;
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(b) => Kind::BoolValue(*b),
        Value::Number(n) => Kind::NumberValue(n.as_f64().unwrap_or_default()),
        Value::String(s) => Kind::StringValue(s.clone()),
        Value::Array(items) => {
            Kind::ListValue(prost_types::ListValue { values: items.iter().map(json_to_value).collect() })
        }
        Value::Object(_) => Kind::StructValue(json_to_struct(value).unwrap_or_default()),
    };
    prost_types::Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::proto::envoy::config::bootstrap::v3::RuntimeLayer;

    #[test]
    fn whole_numbers_are_integers_and_others_stay() {
        let given = json!({"name": "l", "static_layer": {"a": 7, "b": [0.5, -3.0], "c": {"d": 1e18}}});
        let layer: RuntimeLayer = from_json(&given, true).expect("a layer");
        let text = to_json_of_fields(&layer).expect("it is JSON").to_string();
        assert_eq!(text, r#"{"name":"l","static_layer":{"a":7,"b":[0.5,-3],"c":{"d":1e+18}}}"#);
    }

    #[test]
    fn durations_are_gos() {
        let nanoseconds = |text| go_duration(text).map(|d| d.as_nanos());
        for (text, expected) in [
            ("0", 0),
            ("1h2m3.5s", 3_723_500_000_000),
            ("100ms", 100_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("1.5µs", 1_500),
            ("1.9ns", 1),
            ("0.1s", 100_000_000),
            ("0.000000000000000000001h", 0),
            ("9223372036854775807ns", i64::MAX as u128),
        ] {
            assert_eq!(nanoseconds(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "1",
            ".s",
            "1.2.3s",
            "-1s",
            "s",
            "1d",
            "9223372036854775808ns",
            "88888888880s",
            "99999999999999999999s",
        ] {
            assert_eq!(nanoseconds(text), None, "{text}");
        }
    }
}
