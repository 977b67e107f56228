//! What tests outside of the crate need: a small xDS client for both protocols, and a server with made-up resources.
//!
//! Built only for tests and with the feature `testing`; nothing of the program uses it.

mod ads_client;
mod fake_server;

pub use ads_client::{AdsClient, ClientError, Content, DeltaStream, SotwStream};
pub use fake_server::{FakeGenerator, FakeServer};
