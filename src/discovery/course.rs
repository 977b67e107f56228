//! The course of one push that is traced, and the spans that it becomes. Pure: callers tell the time.
//!
//! Invariant: a course is bounded. Beyond [`MOST_DELIVERIES`] responses only their number is known.

use std::{
    collections::HashMap,
    time::{Duration, Instant, SystemTime},
};

use opentelemetry::{
    Array, KeyValue, StringValue, Value,
    trace::{Event, SpanBuilder, SpanKind},
};

use super::{
    causes::Cause,
    push_event::{PushEvent, Stages},
};
use crate::{telemetry::SpanTree, xds::ResourceType};

/// Responses of one push that have a span.
const MOST_DELIVERIES: usize = 1000;
/// Longest text of a refusal, in bytes.
const COMPLAINT: usize = 300;
/// A push is over when nothing has happened to it for this long and nothing is under way.
const QUIET: Duration = Duration::from_secs(1);
/// A push is over after this time, though a client has not answered.
const LONGEST: Duration = Duration::from_secs(30);

/// A response, as it is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent<'a> {
    /// Number and id of the connection.
    pub(super) connection: (u64, &'a str),
    pub(super) kind: ResourceType,
    pub(super) bytes: usize,
    pub(super) resources: usize,
}

#[derive(Debug)]
struct Delivery {
    connection: String,
    kind: ResourceType,
    bytes: usize,
    resources: usize,
    at: Instant,
    /// When it was answered, and the complaint of a refusal.
    answered: Option<(Instant, Option<String>)>,
}

/// The generator's runs for one type.
#[derive(Debug)]
struct Builds {
    kind: ResourceType,
    first: Instant,
    last: Instant,
    runs: i64,
    busy: Duration,
}

/// A push from its first event on.
#[derive(Debug)]
pub(super) struct Course {
    /// One moment on both clocks.
    moment: (Instant, SystemTime),
    /// The first of the merged events.
    start: Instant,
    stages: Option<Stages>,
    published: Instant,
    /// The moment since which all clients that it is for are awake.
    propagated: Option<Instant>,
    last: Instant,
    building: usize,
    builds: Vec<Builds>,
    deliveries: Vec<Delivery>,
    /// Deliveries without an answer, by connection and type.
    open: HashMap<(u64, ResourceType), usize>,
    left_out: i64,
}

impl Course {
    pub(super) fn new(now: (Instant, SystemTime), start: Instant, stages: Option<Stages>) -> Self {
        Self {
            moment: now,
            start,
            stages,
            published: now.0,
            propagated: None,
            last: now.0,
            building: 0,
            builds: Vec::new(),
            deliveries: Vec::new(),
            open: HashMap::new(),
            left_out: 0,
        }
    }

    /// All clients that it is for are awake.
    pub(super) fn propagated(&mut self, now: Instant) {
        self.propagated = Some(now);
        self.last = self.last.max(now);
    }

    /// A run of the generator is due; it may wait for its turn.
    pub(super) fn build_is_due(&mut self) {
        self.building += 1;
    }

    /// The run has ended; `begin` is `None` if it never began.
    pub(super) fn built(&mut self, now: Instant, kind: ResourceType, begin: Option<Instant>) {
        self.building = self.building.saturating_sub(1);
        self.last = self.last.max(now);
        let Some(begin) = begin else { return };
        let busy = now.saturating_duration_since(begin);
        match self.builds.iter_mut().find(|b| b.kind == kind) {
            Some(builds) => {
                builds.first = builds.first.min(begin);
                builds.last = builds.last.max(now);
                builds.runs += 1;
                builds.busy += busy;
            }
            None => self.builds.push(Builds { kind, first: begin, last: now, runs: 1, busy }),
        }
    }

    /// A response was sent.
    pub(super) fn sent(&mut self, now: Instant, sent: Sent<'_>) {
        self.last = self.last.max(now);
        let key = (sent.connection.0, sent.kind);
        if self.deliveries.len() >= MOST_DELIVERIES {
            // Its answer is not the answer to an earlier one.
            self.open.remove(&key);
            self.left_out += 1;
            return;
        }
        self.open.insert(key, self.deliveries.len());
        self.deliveries.push(Delivery {
            connection: sent.connection.1.to_string(),
            kind: sent.kind,
            bytes: sent.bytes,
            resources: sent.resources,
            at: now,
            answered: None,
        });
    }

    /// A connection has answered, with a complaint where it refuses the response.
    pub(super) fn answered(&mut self, now: Instant, connection: u64, kind: ResourceType, complaint: Option<&str>) {
        self.last = self.last.max(now);
        let place = self.open.remove(&(connection, kind));
        if let Some(delivery) = place.and_then(|place| self.deliveries.get_mut(place)) {
            let cut = |text: &str| text.char_indices().take_while(|(at, _)| *at < COMPLAINT).map(|(_, c)| c).collect();
            delivery.answered = Some((now, complaint.map(cut)));
        }
    }

    /// Whether its trace is to be exported now.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let since = |then: Instant| now.saturating_duration_since(then);
        let idle = self.propagated.is_some() && self.building == 0 && self.open.is_empty();
        (idle && since(self.last) >= QUIET) || since(self.published) >= LONGEST
    }

    /// The trace of the push: its stages, the builds and the responses as children of one span.
    pub(super) fn trace(&self, event: &PushEvent, causes: &[Cause]) -> SpanTree {
        let mut children = Vec::new();
        if let Some(stages) = &self.stages {
            if let Some((end, events)) = stages.gathered {
                let span = internal("debounce").with_attributes([number("events", i64::from(events))]);
                children.push(self.span(span, self.start, end));
            }
            children.push(self.span(internal("context"), stages.context.0, stages.context.1));
        }
        if let Some(propagated) = self.propagated {
            let reached = [count("views", event.views), count("connections", event.connections)];
            children.push(self.span(internal("publish").with_attributes(reached), self.published, propagated));
        }
        children.extend(self.builds.iter().map(|builds| {
            let span = internal(format!("build {}", builds.kind.short())).with_attributes([
                KeyValue::new("pilothouse.type", builds.kind.short()),
                number("build.runs", builds.runs),
                KeyValue::new("pilothouse.build.busy_ms", builds.busy.as_secs_f64() * 1e3),
            ]);
            self.span(span, builds.first, builds.last)
        }));
        children.extend(self.deliveries.iter().map(|delivery| self.delivery(delivery)));
        let end = children.iter().map(|child| child.end).max().unwrap_or_else(|| self.wall(self.published));
        let mut attributes = vec![
            count("version", event.version),
            KeyValue::new("pilothouse.push.forced", event.forced),
            number("changed", event.changed as i64),
            texts("reasons", event.reasons.iter().map(|(reason, n)| format!("{reason}={n}"))),
            texts("keys", event.keys.iter().cloned()),
            count("responses", event.responses),
            count("bytes", event.bytes),
            count("acked", event.acked),
            count("nacked", event.nacked),
            number("unanswered", self.open.len() as i64),
            number("responses_left_out", self.left_out),
        ];
        // The first object stands on the span itself, where every tool can search for it; all of them are events.
        attributes.extend(causes.first().into_iter().flat_map(Cause::attributes));
        let start = self.wall(self.start);
        let changed = causes.iter().map(|cause| Event::new("object changed", start, cause.attributes(), 0)).collect();
        let root = internal("push").with_attributes(attributes).with_events(changed);
        SpanTree { children, ..SpanTree::new(root, start, end) }
    }

    fn delivery(&self, delivery: &Delivery) -> SpanTree {
        let kind = delivery.kind.short();
        let mut attributes = vec![
            KeyValue::new("pilothouse.type", kind),
            KeyValue::new("pilothouse.connection", delivery.connection.clone()),
            number("response.bytes", delivery.bytes as i64),
            number("response.resources", delivery.resources as i64),
        ];
        let (end, outcome, error) = match &delivery.answered {
            None => (delivery.at, None, None),
            Some((at, None)) => (*at, Some("ACK"), None),
            Some((at, Some(complaint))) => (*at, Some("NACK"), Some(complaint.clone())),
        };
        attributes.push(KeyValue::new("pilothouse.answer", outcome.unwrap_or("none")));
        let events = outcome.map(|outcome| Event::new(outcome, self.wall(end), Vec::new(), 0)).into_iter().collect();
        let span = SpanBuilder::from_name(format!("send {kind}")).with_kind(SpanKind::Client);
        let span = span.with_attributes(attributes).with_events(events);
        SpanTree { error, ..self.span(span, delivery.at, end) }
    }

    fn span(&self, span: SpanBuilder, start: Instant, end: Instant) -> SpanTree {
        SpanTree::new(span, self.wall(start), self.wall(end))
    }

    /// The time of day of a moment.
    fn wall(&self, at: Instant) -> SystemTime {
        let (moment, wall) = self.moment;
        wall.checked_sub(moment.saturating_duration_since(at)).unwrap_or(wall) + at.saturating_duration_since(moment)
    }
}

fn internal(name: impl Into<std::borrow::Cow<'static, str>>) -> SpanBuilder {
    SpanBuilder::from_name(name).with_kind(SpanKind::Internal)
}

fn number(name: &str, value: i64) -> KeyValue {
    let name = if name.contains('.') { format!("pilothouse.{name}") } else { format!("pilothouse.push.{name}") };
    KeyValue::new(name, value)
}

fn count(name: &str, value: u64) -> KeyValue {
    number(name, i64::try_from(value).unwrap_or(i64::MAX))
}

fn texts(name: &str, values: impl Iterator<Item = String>) -> KeyValue {
    let values: Vec<StringValue> = values.map(StringValue::from).collect();
    KeyValue::new(format!("pilothouse.push.{name}"), Value::Array(Array::String(values)))
}

#[cfg(test)]
mod tests;
