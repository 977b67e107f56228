//! Helpers for tests outside of the crate: a small xDS client for both protocols, a server with made-up resources, a server
//! that misbehaves by a script, and TLS clients of any server.
//!
//! Built only for tests and with the feature `testing`; nothing of the program uses it.

mod ads_client;
mod any_server;
mod fake_server;
mod registry;
mod scripted_upstream;

pub use ads_client::{AdsClient, ClientError, Content, DeltaStream, SotwStream};
pub use any_server::client_of_any_server;
pub use fake_server::{FakeGenerator, FakeServer};
pub use registry::snapshot_of;
pub use scripted_upstream::{ScriptedStream, ScriptedUpstream};
