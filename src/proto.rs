//! Generated protobuf types under short names, and the descriptor pool for conversion from and to proto3 JSON.
//!
//! The types are those of the crate in `proto/`: Envoy's files come from the published `envoy-types` package, Istio's are in
//! that folder. Nothing here depends on the meaning of a field.

mod enum_numbers;
mod json;

pub use json::{
    ProtoError, descriptor, dynamic_from_json, from_json, go_duration, json_to_struct, json_to_value, pool,
    struct_to_json, to_json, to_json_of_fields, value_to_json,
};

pub use pilothouse_proto::{DESCRIPTORS, envoy, google, istio, opentelemetry, stats, udpa, validate, xds};

/// `google.protobuf` well-known types.
pub use prost_types as wkt;

use prost::Name;

/// Istio's networking messages (`networking.istio.io`), which all versions share.
pub mod networking {
    pub use super::istio::networking::v1alpha3::*;
}

/// Istio's mesh-wide settings: `MeshConfig` and `MeshNetworks`.
pub mod mesh {
    pub use super::istio::mesh::v1alpha1::*;
}

/// Packs a message into an `Any` with the prefix `type.googleapis.com/`.
pub fn to_any<M: Name>(message: &M) -> wkt::Any {
    wkt::Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

/// Converts whole milliseconds to a protobuf duration.
#[must_use]
pub const fn millis(ms: i64) -> wkt::Duration {
    wkt::Duration { seconds: ms / 1000, nanos: ((ms % 1000) * 1_000_000) as i32 }
}

/// Converts whole seconds to a protobuf duration.
#[must_use]
pub const fn seconds(s: i64) -> wkt::Duration {
    wkt::Duration { seconds: s, nanos: 0 }
}
