//! Proto3 JSON in both directions, through the descriptor pool.

use std::sync::LazyLock;

use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage, SerializeOptions};
use serde_json::Value;

/// Why a value is not a message of the wanted type.
#[derive(Debug, thiserror::Error)]
pub enum ProtoError {
    /// The descriptor set that was built in lacks this message: a mistake of the build.
    #[error("no descriptor for message {0}")]
    UnknownMessage(String),
    /// The JSON does not fit the message; the text names the field.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// The bytes do not decode as the message.
    #[error("{0}")]
    Wire(#[from] prost::DecodeError),
}

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    // The bytes are written by build.rs in the same build: a failure here is caught by the first test that runs.
    DescriptorPool::decode(include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin")).as_slice())
        .unwrap_or_else(|_| DescriptorPool::new())
});

/// All messages that this build knows, Envoy's and Istio's.
pub fn pool() -> &'static DescriptorPool {
    &POOL
}

/// Decodes proto3 JSON. Unknown fields are passed over when `strict` is false.
///
/// # Errors
/// [`ProtoError::Json`] with the place and the reason when a value does not fit.
pub fn from_json<M: Message + Name + Default>(value: &Value, strict: bool) -> Result<M, ProtoError> {
    let name = M::full_name();
    let descriptor = pool().get_message_by_name(&name).ok_or_else(|| ProtoError::UnknownMessage(name))?;
    let options = DeserializeOptions::new().deny_unknown_fields(strict);
    let message = DynamicMessage::deserialize_with_options(descriptor, value, &options)?;
    Ok(M::decode(message.encode_to_vec().as_slice())?)
}

/// Encodes a message as proto3 JSON: lowerCamelCase, default values left out, `Any` expanded.
///
/// # Errors
/// [`ProtoError`] when an `Any` inside is of a type that this build does not know.
pub fn to_json<M: Message + Name>(message: &M) -> Result<Value, ProtoError> {
    let name = M::full_name();
    let descriptor = pool().get_message_by_name(&name).ok_or_else(|| ProtoError::UnknownMessage(name))?;
    let dynamic = DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice())?;
    Ok(dynamic.serialize_with_options(serde_json::value::Serializer, &SerializeOptions::new())?)
}

/// A `google.protobuf.Struct` as JSON.
#[must_use]
pub fn struct_to_json(value: &prost_types::Struct) -> Value {
    Value::Object(value.fields.iter().map(|(k, v)| (k.clone(), value_to_json(v))).collect())
}

/// A `google.protobuf.Value` as JSON. Whole numbers become integers.
#[must_use]
pub fn value_to_json(value: &prost_types::Value) -> Value {
    use prost_types::value::Kind;
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        #[allow(clippy::cast_possible_truncation, reason = "the range was checked")]
        Some(Kind::NumberValue(n)) if n.fract() == 0.0 && n.abs() < 9e15 => Value::from(*n as i64),
        Some(Kind::NumberValue(n)) => Value::from(*n),
        Some(Kind::StringValue(s)) => Value::from(s.as_str()),
        Some(Kind::BoolValue(b)) => Value::from(*b),
        Some(Kind::StructValue(s)) => struct_to_json(s),
        Some(Kind::ListValue(l)) => Value::Array(l.values.iter().map(value_to_json).collect()),
    }
}
