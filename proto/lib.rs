//! Envoy's and Istio's protobuf messages as Rust types, with their descriptors. `build.rs` generates them in a crate of their
//! own, so that a change of the program does not compile them again.
//!
//! Envoy's files come from the published `envoy-types` package; Istio's are the `.proto` files in this folder. Maps are
//! `BTreeMap` and bytes are `Bytes`, so equal messages encode to equal bytes.

#[allow(
    missing_docs,
    dead_code,
    clippy::all,
    clippy::pedantic,
    rustdoc::all,
    reason = "generated code keeps the names and the comments of its source"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/protos.rs"));
}

pub mod validate;

pub use generated::{envoy, google, istio, opentelemetry, stats, udpa, xds};

/// The encoded `FileDescriptorSet` of all messages.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The encoded `FileDescriptorSet` of Istio's messages and their imports alone. Decoding Envoy's takes longer than reading a
/// thousand objects.
pub const ISTIO_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/own_descriptors.bin"));
