//! One push, as debug pages and traces show it.

use std::time::Instant;

use serde::Serialize;

use super::ack_times::Percentiles;

/// The times before the publication.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stages {
    /// The end of the debounce, and the number of events that it merged.
    pub(super) gathered: Option<(Instant, u32)>,
    /// Beginning and end of the building of the context.
    pub(super) context: (Instant, Instant),
}

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
    /// `None` without an acknowledgement.
    pub ack_ms: Option<Percentiles>,
    /// `None` where nothing was gathered or built: the generator's failures are pushed so.
    pub stages: Option<StageTimes>,
}

/// The times before a publication, in milliseconds since the trigger.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StageTimes {
    /// The end of the debounce.
    pub debounced_ms: f64,
    /// The events that the debounce merged.
    pub merged: u32,
    /// The beginning of the building of the context, which may wait for the one before.
    pub build_began_ms: f64,
    /// Its end.
    pub build_ended_ms: f64,
}

impl StageTimes {
    pub(super) fn of(start: Instant, stages: &Stages) -> Self {
        let since = |at: Instant| at.saturating_duration_since(start).as_secs_f64() * 1e3;
        let (began, ended) = stages.context;
        let (gathered, merged) = stages.gathered.unwrap_or((began, 1));
        Self { debounced_ms: since(gathered), merged, build_began_ms: since(began), build_ended_ms: since(ended) }
    }
}
