//! The last pushes, from their triggers to their last acknowledgements.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;
use serde::Serialize;

use crate::model::{PushRequest, push_request::PushKind};

/// The number of pushes that are remembered.
const LAST: usize = 200;
/// The number of changed keys of one push that are named.
const NAMED: usize = 20;

/// One push while it is under way.
#[derive(Debug)]
pub struct PushRecord {
    /// Number of the push, from 1.
    pub version: u64,
    at: SystemTime,
    start: Instant,
    forced: bool,
    changed: usize,
    keys: Vec<String>,
    reasons: Vec<(&'static str, u32)>,
    context: Duration,
    views: AtomicU64,
    connections: AtomicU64,
    responses: AtomicU64,
    bytes: AtomicU64,
    acked: AtomicU64,
    nacked: AtomicU64,
    last_sent_micros: AtomicU64,
    last_ack_micros: AtomicU64,
    /// Number of the last connection that there was when it was published.
    newest: u64,
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
}

impl PushRecord {
    pub(super) fn new(version: u64, request: &PushRequest, newest: u64) -> Self {
        let name = |kind| match kind {
            PushKind::Config(kind) | PushKind::Object(kind) => kind.as_str(),
            PushKind::Endpoints => "Endpoints",
            PushKind::DnsName => "DNSName",
        };
        let key = |k: &crate::model::PushKey| format!("{}/{}/{}", name(k.kind), k.namespace, k.name);
        Self {
            version,
            at: SystemTime::now(),
            start: request.start,
            forced: request.forced,
            changed: request.keys.len(),
            keys: request.keys.iter().take(NAMED).map(key).collect(),
            reasons: request.reasons.iter().map(|(reason, n)| (reason.as_str(), *n)).collect(),
            context: request.start.elapsed(),
            views: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            responses: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            acked: AtomicU64::new(0),
            nacked: AtomicU64::new(0),
            last_sent_micros: AtomicU64::new(0),
            last_ack_micros: AtomicU64::new(0),
            newest,
        }
    }

    /// Whether a connection was there when it was published. One that came later is sent the same, and says nothing of how
    /// long the push took.
    pub(super) const fn reaches(&self, connection: u64) -> bool {
        connection <= self.newest
    }

    /// Time since the first of the merged triggers.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.start.elapsed()
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.age().as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn targets(&self, views: usize, connections: usize) {
        self.views.store(views as u64, Relaxed);
        self.connections.store(connections as u64, Relaxed);
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.responses.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.last_sent_micros.fetch_max(self.micros(), Relaxed);
    }

    pub(super) fn acked(&self) {
        self.acked.fetch_add(1, Relaxed);
        self.last_ack_micros.fetch_max(self.micros(), Relaxed);
    }

    pub(super) fn nacked(&self) {
        self.nacked.fetch_add(1, Relaxed);
    }

    /// The push as it stands.
    #[must_use]
    pub fn event(&self) -> PushEvent {
        let millis = |micros: &AtomicU64| micros.load(Relaxed) as f64 / 1e3;
        PushEvent {
            version: self.version,
            at: self.at.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64()),
            forced: self.forced,
            changed: self.changed,
            keys: self.keys.clone(),
            reasons: self.reasons.clone(),
            published_ms: self.context.as_secs_f64() * 1e3,
            views: self.views.load(Relaxed),
            connections: self.connections.load(Relaxed),
            responses: self.responses.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            acked: self.acked.load(Relaxed),
            nacked: self.nacked.load(Relaxed),
            last_sent_ms: millis(&self.last_sent_micros),
            last_ack_ms: millis(&self.last_ack_micros),
        }
    }
}

/// The last pushes.
#[derive(Debug, Default)]
pub(super) struct History {
    records: Mutex<VecDeque<Arc<PushRecord>>>,
}

impl History {
    pub(super) fn push(&self, record: Arc<PushRecord>) {
        let mut records = self.records.lock();
        if records.len() == LAST {
            records.pop_front();
        }
        records.push_back(record);
    }

    /// The pushes, last one first.
    pub(super) fn events(&self) -> Vec<PushEvent> {
        let records = self.records.lock();
        records.iter().rev().map(|r| r.event()).collect()
    }
}
