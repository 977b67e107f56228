//! The upstream source: config objects from another control plane, over xDS (MCP), state of the world or delta.
//!
//! `answer`, `content` and `client` are the protocol without I/O: answers in, requests and changes out. `target` is the
//! upstream's address, `tls` and `credentials` its and our certificates, `link` one connection; `source` brings time and delivers.
//!
//! Invariants: a bad resource is refused by name and its last good version stays; an outage, an answer that is refused and
//! an empty answer delete nothing (the last until it is confirmed); the objects in force survive reconnects and restarts.

mod answer;
pub mod client;
mod content;
mod credentials;
mod link;
mod source;
mod target;
mod tls;

pub use answer::{Answer, Ask, Given};
pub use client::{Client, Protocol};
pub use credentials::{Credentials, SecretData};
pub use source::UpstreamSource;
pub use target::{TargetError, UpstreamTarget};
#[cfg(any(test, feature = "testing"))]
pub(crate) use tls::Unverified;
