//! A push whose times are set, and the spans that it becomes.

use std::sync::Arc;

use super::*;

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A course whose first event is at `start`, published 50 ms later.
fn course(start: Instant) -> Course {
    let at = |n| start + millis(n);
    let stages = Stages { gathered: Some((at(20), 3)), context: (at(25), at(45)) };
    Course::new((at(50), SystemTime::UNIX_EPOCH + millis(1_000_050)), start, Some(stages))
}

fn sent<'a>(number: u64, id: &'a str, kind: ResourceType) -> Sent<'a> {
    Sent { connection: (number, id), kind, bytes: 100, resources: 2 }
}

fn event() -> PushEvent {
    PushEvent {
        version: 7,
        at: 0.0,
        forced: false,
        changed: 1,
        keys: vec!["VirtualService/shop/reviews".to_string()],
        reasons: vec![("config", 3)],
        published_ms: 50.0,
        views: 2,
        connections: 2,
        responses: 3,
        bytes: 300,
        acked: 1,
        nacked: 1,
        last_sent_ms: 0.0,
        last_ack_ms: 0.0,
        ack_ms: None,
        stages: None,
    }
}

fn reviews() -> Cause {
    Cause {
        only: None,
        kind: "VirtualService",
        namespace: "shop".into(),
        name: Arc::from("reviews"),
        place: Some("mesh.yaml:12".to_string()),
    }
}

fn attribute(tree: &SpanTree, name: &str) -> Option<String> {
    let attributes = tree.span.attributes.as_ref().unwrap();
    attributes.iter().find(|a| a.key.as_str() == name).map(|a| a.value.to_string())
}

/// Name, start and end in milliseconds since the first event.
fn times(tree: &SpanTree) -> (String, u128, u128) {
    let since = |t: SystemTime| t.duration_since(SystemTime::UNIX_EPOCH + millis(1_000_000)).unwrap().as_millis();
    (tree.span.name.to_string(), since(tree.span.start_time.unwrap()), since(tree.end))
}

#[test]
fn a_push_is_its_stages_its_builds_and_its_responses() {
    let start = Instant::now();
    let at = |n| start + millis(n);
    let mut course = course(start);
    course.build_is_due();
    course.build_is_due();
    course.propagated(at(60));
    course.built(at(75), ResourceType::Cluster, Some(at(65)));
    course.built(at(80), ResourceType::Cluster, Some(at(70)));
    course.sent(at(81), sent(1, "a-1", ResourceType::Cluster));
    course.sent(at(82), sent(2, "b-2", ResourceType::Cluster));
    course.answered(at(90), 1, ResourceType::Cluster, None);
    course.answered(at(95), 2, ResourceType::Cluster, Some("no such filter"));
    course.sent(at(96), sent(1, "a-1", ResourceType::Listener));
    let trace = course.trace(&event(), &[reviews()]);
    assert_eq!(times(&trace), ("push".to_string(), 0, 96));
    let children: Vec<_> = trace.children.iter().map(times).collect();
    let expected = [
        ("debounce", 0, 20),
        ("context", 25, 45),
        ("publish", 50, 60),
        ("build CDS", 65, 80),
        ("send CDS", 81, 90),
        ("send CDS", 82, 95),
        ("send LDS", 96, 96),
    ];
    assert_eq!(children, expected.map(|(name, start, end)| (name.to_string(), start, end)));
    for (name, value) in [
        ("pilothouse.object.kind", "VirtualService"),
        ("pilothouse.object.namespace", "shop"),
        ("pilothouse.object.name", "reviews"),
        ("pilothouse.object.place", "mesh.yaml:12"),
        ("pilothouse.push.version", "7"),
        ("pilothouse.push.reasons", "[\"config=3\"]"),
        ("pilothouse.push.unanswered", "1"),
        ("pilothouse.push.responses_left_out", "0"),
    ] {
        assert_eq!(attribute(&trace, name).as_deref(), Some(value), "{name}");
    }
    let events = trace.span.events.as_ref().unwrap();
    assert_eq!((events.len(), &*events[0].name), (1, "object changed"));
    assert_eq!(events[0].attributes, reviews().attributes());
    assert_eq!(attribute(&trace.children[0], "pilothouse.push.events").as_deref(), Some("3"));
    assert_eq!(attribute(&trace.children[3], "pilothouse.build.runs").as_deref(), Some("2"));
    assert_eq!(attribute(&trace.children[3], "pilothouse.build.busy_ms").as_deref(), Some("20"));
    let answers: Vec<_> = trace.children[4..].iter().map(|c| attribute(c, "pilothouse.answer").unwrap()).collect();
    assert_eq!(answers, ["ACK", "NACK", "none"]);
    let errors: Vec<_> = trace.children[4..].iter().map(|c| c.error.as_deref()).collect();
    assert_eq!(errors, [None, Some("no such filter"), None]);
    assert_eq!(attribute(&trace.children[5], "pilothouse.connection").as_deref(), Some("b-2"));
}

#[test]
fn a_push_is_over_when_all_is_quiet_or_after_the_longest_time() {
    let start = Instant::now();
    let at = |n| start + millis(n);
    let mut course = course(start);
    assert!(!course.is_over(at(2_000)), "its clients are not awake");
    course.propagated(at(60));
    assert!(!course.is_over(at(1_059)));
    assert!(course.is_over(at(1_060)));
    course.build_is_due();
    assert!(!course.is_over(at(5_000)), "a build waits for its turn");
    course.built(at(5_000), ResourceType::Cluster, None);
    course.sent(at(5_001), sent(1, "a-1", ResourceType::Cluster));
    assert!(!course.is_over(at(20_000)), "a response is not answered");
    course.answered(at(20_000), 1, ResourceType::Cluster, None);
    assert!(!course.is_over(at(20_900)), "the next type may follow");
    assert!(course.is_over(at(21_000)));
    course.sent(at(21_001), sent(1, "a-1", ResourceType::Listener));
    assert!(!course.is_over(at(30_049)));
    assert!(course.is_over(at(30_050)), "a client that never answers");
}

#[test]
fn responses_are_bounded_and_the_rest_is_counted() {
    let start = Instant::now();
    let at = |n| start + millis(n);
    let mut course = course(start);
    course.propagated(at(60));
    for client in 0..1_200 {
        course.sent(at(70), sent(client, "c", ResourceType::Cluster));
    }
    for client in 0..1_200 {
        course.answered(at(80), client, ResourceType::Cluster, None);
    }
    assert!(course.is_over(at(1_080)));
    // This one has a span already; a second response and its answer leave that alone.
    course.sent(at(100), sent(1, "c", ResourceType::Cluster));
    course.answered(at(120), 1, ResourceType::Cluster, Some(&"x".repeat(10_000)));
    let trace = course.trace(&event(), &[]);
    assert_eq!(trace.children.iter().filter(|c| c.span.name.starts_with("send")).count(), 1_000);
    assert!(trace.children.iter().all(|c| c.error.is_none()));
    assert_eq!(attribute(&trace, "pilothouse.push.responses_left_out").as_deref(), Some("201"));
    assert_eq!(trace.count(), 1_004);
}

#[test]
fn complaints_are_cut_between_characters() {
    let start = Instant::now();
    let mut course = course(start);
    course.sent(start, sent(1, "c", ResourceType::Cluster));
    course.answered(start, 1, ResourceType::Cluster, Some(&"é".repeat(1_000)));
    let trace = course.trace(&event(), &[]);
    assert_eq!(trace.children.last().unwrap().error.as_deref(), Some(&*"é".repeat(150)));
}
