//! One push, as debug pages and traces show it.

use serde::Serialize;

/// One push, as it is shown.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs, reason = "the fields are explained by their names; times are in milliseconds since the trigger")]
pub struct PushEvent {
    pub version: u64,
    /// Seconds since 1970.
    pub at: f64,
    pub forced: bool,
    pub changed: usize,
    /// The first changed things, `Kind/namespace/name`.
    pub keys: Vec<String>,
    pub reasons: Vec<(&'static str, u32)>,
    /// Time until the context was published.
    pub published_ms: f64,
    pub views: u64,
    pub connections: u64,
    pub responses: u64,
    pub bytes: u64,
    pub acked: u64,
    pub nacked: u64,
    pub last_sent_ms: f64,
    pub last_ack_ms: f64,
}
