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

use super::{
    ack_times::AckTimes,
    causes::{Cause, Subject},
    course::{Course, Sent},
    push_event::{PushEvent, StageTimes, Stages},
};
use crate::{
    model::{PushKey, PushRequest, push_request::PushKind},
    telemetry::SpanTree,
    xds::ResourceType,
};

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
    ack_times: AckTimes,
    stages: Option<StageTimes>,
    /// Number of the last connection that there was when it was published.
    newest: u64,
    /// Where pushes are traced.
    traced: Option<Traced>,
}

/// What the trace of a push is made of.
#[derive(Debug)]
pub(super) struct Traced {
    /// Until the push is over.
    course: Mutex<Option<Course>>,
    subject: Mutex<Option<Subject>>,
    causes: Mutex<Vec<Cause>>,
}

impl Traced {
    /// `subject` tells the objects of some keys.
    pub(super) fn new(
        request: &PushRequest,
        stages: Option<Stages>,
        subject: impl Fn(Vec<PushKey>) -> Subject,
    ) -> Self {
        let course = Course::new((Instant::now(), SystemTime::now()), request.start, stages);
        let keys = request.keys.iter().take(NAMED).cloned().collect();
        Self { course: Mutex::new(Some(course)), subject: Mutex::new(Some(subject(keys))), causes: Mutex::default() }
    }
}

impl PushRecord {
    pub(super) fn new(
        version: u64,
        request: &PushRequest,
        newest: u64,
        stages: Option<Stages>,
        traced: Option<Traced>,
    ) -> Self {
        let name = |kind| match kind {
            PushKind::Config(kind) | PushKind::Object(kind) => kind.as_str(),
            PushKind::Endpoints => "Endpoints",
            PushKind::DnsName => "DNSName",
        };
        let key = |k: &PushKey| format!("{}/{}/{}", name(k.kind), k.namespace, k.name);
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
            ack_times: AckTimes::default(),
            stages: stages.map(|stages| StageTimes::of(request.start, &stages)),
            newest,
            traced,
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

    /// Time since it was published.
    pub(super) fn queued(&self) -> Duration {
        self.age().saturating_sub(self.context)
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.age().as_micros()).unwrap_or(u64::MAX)
    }

    /// Notes the course of a push that is traced and not over.
    fn note(&self, note: impl FnOnce(&mut Course)) {
        if let Some(traced) = &self.traced
            && let Some(course) = traced.course.lock().as_mut()
        {
            note(course);
        }
    }

    pub(super) fn targets(&self, views: usize, connections: usize) {
        self.views.store(views as u64, Relaxed);
        self.connections.store(connections as u64, Relaxed);
        self.note(|course| course.propagated(Instant::now()));
    }

    pub(super) fn sent(&self, sent: Sent<'_>) {
        self.responses.fetch_add(1, Relaxed);
        self.bytes.fetch_add(sent.bytes as u64, Relaxed);
        self.last_sent_micros.fetch_max(self.micros(), Relaxed);
        self.note(|course| course.sent(Instant::now(), sent));
    }

    pub(super) fn acked(&self, connection: u64, kind: ResourceType) {
        self.acked.fetch_add(1, Relaxed);
        let micros = self.micros();
        self.last_ack_micros.fetch_max(micros, Relaxed);
        self.ack_times.note(micros);
        self.note(|course| course.answered(Instant::now(), connection, kind, None));
    }

    pub(super) fn nacked(&self, connection: u64, kind: ResourceType, complaint: &str) {
        self.nacked.fetch_add(1, Relaxed);
        self.note(|course| course.answered(Instant::now(), connection, kind, Some(complaint)));
    }

    /// Notes a run of the generator for the push, which is over when the guard is dropped.
    pub(super) fn build(self: &Arc<Self>, kind: ResourceType) -> Building {
        self.note(Course::build_is_due);
        let record = self.traced.as_ref().map(|_| self.clone());
        Building { record, kind, begin: None }
    }

    /// Looks up the objects that caused it, and lets go of the contexts.
    pub(super) fn look_up_causes(&self) {
        let Some(traced) = &self.traced else { return };
        // One statement: the lock is not held for the walk.
        let subject = traced.subject.lock().take();
        if let Some(subject) = subject {
            *traced.causes.lock() = subject.causes();
        }
    }

    /// Its trace, once: when it is over, or by force.
    pub(super) fn take_trace(&self, now: Instant, force: bool) -> Option<SpanTree> {
        let traced = self.traced.as_ref()?;
        let course = traced.course.lock().take_if(|course| force || course.is_over(now))?;
        self.look_up_causes();
        let causes = traced.causes.lock();
        Some(course.trace(&self.event(), &causes))
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
            ack_ms: self.ack_times.percentiles(),
            stages: self.stages,
        }
    }
}

/// A run of the generator; costs nothing where pushes are not traced.
#[derive(Debug)]
pub(super) struct Building {
    record: Option<Arc<PushRecord>>,
    kind: ResourceType,
    begin: Option<Instant>,
}

impl Building {
    /// Its turn has come.
    pub(super) fn begins(&mut self) {
        self.begin = self.record.as_ref().map(|_| Instant::now());
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        if let Some(record) = &self.record {
            record.note(|course| course.built(Instant::now(), self.kind, self.begin));
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
