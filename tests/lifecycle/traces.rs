//! Pushes as OpenTelemetry traces, through the program and a collector that speaks the real protocol; and collectors that hang
//! or are absent.

use std::{fs, net::SocketAddr};

use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use pilothouse::{testing::AdsClient, xds::ResourceType};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::{
    binary::Binary,
    collector::{Certified, Collector, attribute},
    drain::connect_when_ready,
    proxy::Proxies,
    stage::{DEADLINE, entry},
};

/// A folder with one service.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    dir
}

fn add(dir: &TempDir, name: &str) {
    fs::write(dir.path().join(format!("{name}.yaml")), entry(name, &format!("{name}.example"))).unwrap();
}

/// The program, with two proxies that hold the first service.
async fn serve(dir: &TempDir, env: &[(&str, &str)]) -> (Binary, SocketAddr, Proxies) {
    let mut server = Binary::serve(dir.path(), &[], env);
    let (grpc, _) = server.addresses();
    let mut proxies = connect_when_ready(grpc).await;
    proxies.until("a.example").await;
    (server, grpc, proxies)
}

async fn a_push_is_a_trace(mut collector: Collector, env: &[(&str, &str)]) {
    let dir = folder();
    let named = [
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=shop"),
        ("OTEL_SERVICE_NAME", "control-plane"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test"),
        ("OTEL_BSP_SCHEDULE_DELAY", "50"),
    ];
    let (mut server, grpc, mut proxies) = serve(&dir, &[&named, env].concat()).await;
    // This one refuses the next response.
    let stranger = AdsClient::connect(grpc, "10.0.0.7").await.unwrap();
    let mut refusing = stranger.sotw(None).await.unwrap();
    refusing.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
    let first = refusing.next().await.unwrap();
    refusing.subscribe(ResourceType::Cluster, &[], &first.nonce).await.unwrap();
    add(&dir, "b");
    let second = refusing.next().await.unwrap();
    refusing.refuse(&second, &[]).await.unwrap();
    proxies.until("b.example").await;

    let of_b = |span: &Span| attribute(&span.attributes, "pilothouse.object.name").as_deref() == Some("b");
    let answered = |collector: &Collector, span: &Span| {
        collector.children(span).iter().filter(|child| child.name == "send CDS").count() >= 3
    };
    let push = collector.until(|collector, span| of_b(span) && answered(collector, span));
    let says = |name: &str| attribute(&push.attributes, name).unwrap_or_default();
    assert_eq!(says("pilothouse.object.kind"), "ServiceEntry");
    assert_eq!(says("pilothouse.object.namespace"), "shop");
    // The document begins with `---`: its first field is in the second line.
    assert!(says("pilothouse.object.place").ends_with("/b.yaml:2"), "{}", says("pilothouse.object.place"));
    assert!(push.events.iter().any(|e| attribute(&e.attributes, "pilothouse.object.name").as_deref() == Some("b")));
    let children = collector.children(&push);
    let names: Vec<&str> = children.iter().map(|child| child.name.as_str()).collect();
    for name in ["debounce", "context", "publish", "build CDS", "send CDS"] {
        assert!(names.contains(&name), "{name} among {names:?}");
    }
    assert!(children.iter().all(|c| {
        let (begin, end) = (push.start_time_unix_nano, push.end_time_unix_nano);
        begin <= c.start_time_unix_nano && c.start_time_unix_nano <= c.end_time_unix_nano && c.end_time_unix_nano <= end
    }));
    let mut answers: Vec<(String, bool, String)> = Vec::new();
    for send in children.iter().filter(|child| child.name == "send CDS") {
        let is_error = send.status.as_ref().is_some_and(|s| s.code == StatusCode::Error as i32);
        let text = |name: &str| attribute(&send.attributes, name).unwrap();
        let connection = text("pilothouse.connection").rsplit_once('-').unwrap().0.to_string();
        answers.push((connection, is_error, text("pilothouse.answer")));
    }
    let nacks = answers.iter().filter(|(_, is_error, answer)| *is_error && answer == "NACK").count();
    let acks = answers.iter().filter(|(_, is_error, answer)| !is_error && answer == "ACK").count();
    assert!(nacks == 1 && acks >= 2, "{answers:?}");
    assert_eq!(collector.resource("service.name").as_deref(), Some("control-plane"));
    assert_eq!(collector.resource("deployment.environment").as_deref(), Some("test"));
    assert_eq!(collector.resource("service.version").as_deref(), Some(env!("CARGO_PKG_VERSION")));

    // The last push is exported by the end of the process, though it is not over.
    add(&dir, "c");
    proxies.until("c.example").await;
    server.terminate();
    let of_c = |span: &Span| attribute(&span.attributes, "pilothouse.object.name").as_deref() == Some("c");
    tokio::task::spawn_blocking(move || {
        collector.until(|_, span| of_c(span));
        assert_eq!(server.ends_within(DEADLINE).code(), Some(0));
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_a_trace_over_grpc() {
    let collector = Collector::grpc().await;
    let endpoint = format!("http://{}", collector.address);
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
    a_push_is_a_trace(collector, &env).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_a_trace_over_http() {
    let collector = Collector::http().await;
    let endpoint = format!("http://{}/v1/traces", collector.address);
    let env = [("OTEL_TRACES_EXPORTER", "otlp"), ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &*endpoint)];
    a_push_is_a_trace(collector, &env).await;
}

/// Over TLS, with the authority of the environment.
async fn a_push_is_a_trace_over_tls(protocol: &str) {
    let (certified, dir) = (Certified::new(), tempfile::tempdir().unwrap());
    let authority = dir.path().join("ca.pem");
    fs::write(&authority, &certified.authority).unwrap();
    let collector = match protocol {
        "grpc" => Collector::grpc_with_tls(&certified).await,
        _ => Collector::http_with_tls(&certified).await,
    };
    let endpoint = format!("https://{}", collector.address);
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", authority.to_str().unwrap()),
    ];
    a_push_is_a_trace(collector, &env).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_a_trace_over_grpc_with_tls() {
    a_push_is_a_trace_over_tls("grpc").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_a_trace_over_https() {
    a_push_is_a_trace_over_tls("http/protobuf").await;
}

/// A collector that another authority vouches for, or none, gets no spans.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_the_authority_does_not_vouch_for_gets_nothing() {
    let (certified, files) = (Certified::new(), tempfile::tempdir().unwrap());
    let authority = files.path().join("ca.pem");
    fs::write(&authority, Certified::new().authority).unwrap();
    for protocol in ["grpc", "http/protobuf"] {
        let collector = match protocol {
            "grpc" => Collector::grpc_with_tls(&certified).await,
            _ => Collector::http_with_tls(&certified).await,
        };
        let endpoint = format!("https://{}", collector.address);
        let env = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", authority.to_str().unwrap()),
            ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        ];
        let dir = folder();
        let (mut server, _, mut proxies) = serve(&dir, &env).await;
        add(&dir, "b");
        proxies.until("b.example").await;
        server.until("a line about lost spans", |line| line.contains("spans of traces are dropped").then_some(()));
        assert_eq!(collector.waiting(), 0, "{protocol}");
    }
}

/// Without a collector that takes anything pushes go on, and the end of the process does not wait for it.
async fn pushes_go_on(endpoint: &str, protocol: &str) {
    let dir = folder();
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        // Ten minutes: any wait for the collector shows.
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "600000"),
        ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "40"),
    ];
    let (mut server, _, mut proxies) = serve(&dir, &env).await;
    for number in 0..12 {
        add(&dir, &format!("s{number}"));
        proxies.until(&format!("s{number}.example")).await;
    }
    // The queue is full and the export hangs by then, or has failed: each is one line in ten seconds.
    server.until("a line about lost spans", |line| line.contains("spans of traces are dropped").then_some(()));
    assert!(server.lines_with("spans of traces are dropped") <= 5);
    add(&dir, "last");
    proxies.until("last.example").await;
    server.terminate();
    let status = tokio::task::spawn_blocking(move || server.ends_within(DEADLINE)).await.unwrap();
    assert_eq!(status.code(), Some(0));
    proxies.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_holds_nothing_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let hangs = tokio::spawn(async move {
        let mut connections = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            connections.push(connection);
        }
    });
    pushes_go_on(&endpoint, "http/protobuf").await;
    pushes_go_on(&endpoint, "grpc").await;
    hangs.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absent_collector_holds_nothing_up() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    pushes_go_on(&format!("http://{port}"), "http/protobuf").await;
    pushes_go_on(&format!("http://{port}"), "grpc").await;
}

/// The sampler of the environment decides, and traces that are off ask no collector.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_sampled_or_off_is_not_exported() {
    for off in [("OTEL_TRACES_SAMPLER", "always_off"), ("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")]
    {
        let (dir, collector) = (folder(), Collector::http().await);
        let endpoint = format!("http://{}", collector.address);
        let (mut server, _, mut proxies) = serve(&dir, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint), off]).await;
        add(&dir, "b");
        proxies.until("b.example").await;
        server.terminate();
        let status = tokio::task::spawn_blocking(move || server.ends_within(DEADLINE)).await.unwrap();
        assert_eq!((status.code(), collector.waiting()), (Some(0), 0), "{off:?}");
    }
}

/// A setting that cannot be followed is an error in the log; pushes go on without traces.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_endpoint_is_told() {
    let dir = folder();
    let nothing = dir.path().join("empty.pem");
    fs::write(&nothing, "").unwrap();
    let tls = ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:1");
    for env in [
        [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://no endpoint"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
        [tls, ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere/ca.pem")],
        [tls, ("OTEL_EXPORTER_OTLP_CERTIFICATE", nothing.to_str().unwrap())],
    ] {
        let mut server = Binary::serve(dir.path(), &[], &env);
        server.until("an error", |line| line.contains("traces are off").then_some(()));
        let (grpc, _) = server.addresses();
        connect_when_ready(grpc).await.until("a.example").await;
    }
}
