//! The queue and the sampling of traces, and a collector that is not there.

use std::time::SystemTime;

use opentelemetry::trace::SpanBuilder;

use super::*;

/// Settings of an endpoint that nothing listens on; the exporter of a test is never asked.
fn settings(most_waiting: usize) -> TraceSettings {
    let (settings, _) = TraceSettings::read(|name| (name == "OTEL_TRACES_EXPORTER").then(|| "otlp".to_string()));
    TraceSettings { most_waiting, endpoint: "http://127.0.0.1:1".to_string(), ..settings.unwrap() }
}

fn trace(children: usize) -> SpanTree {
    let now = SystemTime::now();
    let span = || SpanTree::new(SpanBuilder::from_name("x"), now, now);
    SpanTree { children: (0..children).map(|_| span()).collect(), ..span() }
}

fn stage(most_waiting: usize) -> (TraceQueue, TraceExport) {
    let settings = settings(most_waiting);
    let exporter = exporter(&settings).unwrap();
    pipeline(settings, exporter, &resource("me"))
}

#[tokio::test]
async fn spans_that_wait_are_bounded() {
    let (queue, mut export) = stage(25);
    (0..100).for_each(|_| queue.offer(trace(9)));
    assert_eq!(queue.waiting.load(Ordering::Relaxed), 20, "two traces of ten spans");
    while let Ok(trace) = export.receiver.try_recv() {
        export.take(trace);
    }
    assert_eq!(export.sampled.lock().len(), 20);
    queue.offer(trace(9));
    assert_eq!(queue.waiting.load(Ordering::Relaxed), 10, "there is room again");
}

#[tokio::test]
async fn children_are_in_the_trace_of_their_parent() {
    let (queue, mut export) = stage(25);
    queue.offer(SpanTree { error: Some("broken".to_string()), ..trace(2) });
    let trace = export.receiver.try_recv().unwrap();
    export.take(trace);
    let spans = export.sampled.lock();
    let (children, root): (Vec<_>, Vec<_>) =
        spans.iter().partition(|s| s.parent_span_id != opentelemetry::trace::SpanId::INVALID);
    assert_eq!((children.len(), root.len()), (2, 1));
    for child in children {
        assert_eq!(child.parent_span_id, root[0].span_context.span_id());
        assert_eq!(child.span_context.trace_id(), root[0].span_context.trace_id());
    }
    assert_eq!(root[0].status, Status::error("broken"));
}

/// No collector is there: the spans are dropped, and the end does not wait for it.
#[tokio::test]
async fn an_absent_collector_costs_its_spans() {
    let (queue, export) = stage(25);
    let stop = CancellationToken::new();
    let task = tokio::spawn(export.run(stop.clone()));
    queue.offer(trace(3));
    stop.cancel();
    timeout(Duration::from_secs(20), task).await.unwrap().unwrap();
    assert_eq!(queue.waiting.load(Ordering::Relaxed), 0);
}

#[test]
fn the_resource_is_the_service_and_its_instance() {
    let resource = resource("host-1");
    let value = |key: &'static str| resource.get(&Key::from_static_str(key)).map(|v| v.to_string());
    assert_eq!(value("service.name").as_deref(), Some("pilothouse"));
    assert_eq!(value("service.instance.id").as_deref(), Some("host-1"));
    assert_eq!(value("service.version").as_deref(), Some(env!("CARGO_PKG_VERSION")));
}
