//! A finished trace as a value: a span with the spans that it caused.

use std::time::SystemTime;

use opentelemetry::trace::SpanBuilder;

/// A finished span with its children. Ids are given when it is exported.
#[derive(Debug)]
pub struct SpanTree {
    /// Name, kind, start, attributes and events.
    pub span: SpanBuilder,
    /// The end of the span.
    pub end: SystemTime,
    /// The reason of a failure: the status of the span is then `Error`.
    pub error: Option<String>,
    /// Spans inside it.
    pub children: Vec<Self>,
}

impl SpanTree {
    /// A span from `start` to `end`, or of no length where the clock went back.
    #[must_use]
    pub fn new(span: SpanBuilder, start: SystemTime, end: SystemTime) -> Self {
        Self { span: span.with_start_time(start), end: end.max(start), error: None, children: Vec::new() }
    }

    /// The number of spans.
    #[must_use]
    pub fn count(&self) -> usize {
        1 + self.children.iter().map(Self::count).sum::<usize>()
    }
}
