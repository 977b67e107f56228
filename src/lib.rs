//! pilothouse: an Istio-API control plane in one binary.
pub mod admin;
pub mod app;
pub mod cli;
pub mod generate;
pub mod handlers;
pub mod model;
pub mod proto;
pub mod push;
pub mod registry;
pub mod runtime;
pub mod settings;
pub mod simulate;
pub mod sources;
pub mod store;
pub mod telemetry;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod translate;
pub mod xds;
