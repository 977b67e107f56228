//! Clients that are hostile, broken or slow: their own stream may end, nothing else.

use std::time::Duration;

use pilothouse::{
    proto::envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryRequest},
    testing::{AdsClient, ClientError, FakeServer},
    xds::{
        ResourceType::{Cluster, Listener, NameTable},
        XdsOptions,
    },
};
use tonic::Code;

use super::{content, server, set, sotw_content};

/// What a stream that starts with this request ends with.
async fn end_of(server: &FakeServer, node: Option<&str>, request: DiscoveryRequest) -> Code {
    let node = Node { id: node.unwrap_or_default().into(), ..Node::default() };
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection").with_node(node);
    let mut stream = client.sotw(None).await.expect("a stream");
    // A server that refuses at once may close the stream before it is asked anything.
    let _ = stream.send(request).await;
    loop {
        match stream.next().await {
            Ok(_) => {}
            Err(ClientError::Status(status)) => return status.code(),
            Err(other) => panic!("{other}"),
        }
    }
}

fn ask(names: Vec<String>) -> DiscoveryRequest {
    DiscoveryRequest { type_url: Cluster.url().into(), resource_names: names, ..DiscoveryRequest::default() }
}

/// The server goes on serving others.
async fn is_well(server: &FakeServer) {
    let client = AdsClient::connect(server.address, "10.0.0.9").await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    stream.subscribe(Cluster, &["a"], "").await.expect("an open stream");
    assert_eq!(sotw_content(&stream.next().await.expect("a response")), content(&["a"], "1"));
}

#[tokio::test]
async fn bad_first_requests_are_refused_with_a_reason() {
    let server = server(Cluster, &["a"]).await;
    let node = "sidecar~10.0.0.1~a.b~b.svc.cluster.local";
    assert_eq!(end_of(&server, None, ask(vec![])).await, Code::InvalidArgument);
    assert_eq!(end_of(&server, Some("nonsense"), ask(vec![])).await, Code::InvalidArgument);
    assert_eq!(end_of(&server, Some("sidecar~no-ip~a.b~d"), ask(vec![])).await, Code::InvalidArgument);
    let huge = format!("{node}{}", "x".repeat(1 << 20));
    assert_eq!(end_of(&server, Some(&huge), ask(vec![])).await, Code::ResourceExhausted);
    let many = (0..150_000).map(|n| n.to_string()).collect();
    assert_eq!(end_of(&server, Some(node), ask(many)).await, Code::ResourceExhausted);
    let long = vec!["x".repeat(10_000)];
    assert_eq!(end_of(&server, Some(node), ask(long)).await, Code::ResourceExhausted);
    let too_big = vec!["x".repeat(5 << 20)];
    assert_eq!(end_of(&server, Some(node), ask(too_big)).await, Code::ResourceExhausted);
    assert_eq!(server.state.connections().len(), 0, "refused streams leave nothing behind");
    is_well(&server).await;
}

#[tokio::test]
async fn streams_are_refused_until_something_is_published() {
    let server = FakeServer::start_unready(XdsOptions::default()).await.expect("a free port");
    let node = Some("sidecar~10.0.0.1~a.b~b.svc.cluster.local");
    assert_eq!(end_of(&server, node, ask(vec![])).await, Code::Unavailable);
    set(&server, Cluster, &["a"], "1");
    is_well(&server).await;
}

#[tokio::test]
async fn a_silent_client_is_sent_away() {
    let options = XdsOptions { first_request: Duration::from_millis(50), ..XdsOptions::default() };
    let server = FakeServer::start(options).await.expect("a free port");
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    match stream.next().await {
        Err(ClientError::Status(status)) => assert_eq!(status.code(), Code::DeadlineExceeded),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let options = XdsOptions { send_stall: Duration::from_millis(100), ..XdsOptions::default() };
    let server = FakeServer::start(options).await.expect("a free port");
    let big = "x".repeat(8 << 20);
    server.set(&[(Cluster, "a", Some(&big)), (Listener, "a", Some(&big)), (NameTable, "a", Some(&big))]);
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    for kind in [Cluster, Listener, NameTable] {
        stream.subscribe(kind, &[], "").await.expect("an open stream");
    }
    let gone = async {
        while server.state.connections().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        while !server.state.connections().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("the client is cut off");
    set(&server, Cluster, &["a"], "1");
    is_well(&server).await;
}

#[tokio::test]
async fn unknown_types_do_not_end_a_stream() {
    let server = server(Cluster, &["a"]).await;
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    let odd = DiscoveryRequest { type_url: "type.googleapis.com/odd".into(), ..DiscoveryRequest::default() };
    stream.send(odd).await.expect("an open stream");
    stream.subscribe(Cluster, &[], "").await.expect("an open stream");
    assert_eq!(sotw_content(&stream.next().await.expect("a response")), content(&["a"], "1"));
}

#[tokio::test]
async fn a_generator_that_panics_costs_only_its_resources() {
    let server = server(Cluster, &["a"]).await;
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    stream.subscribe(Cluster, &[], "").await.expect("an open stream");
    let response = stream.next().await.expect("a response");
    stream.subscribe(Cluster, &[], &response.nonce).await.expect("an open stream");
    set(&server, Cluster, &["a"], "panic");
    is_well_after_panic(&server).await;
    set(&server, Cluster, &["a"], "2");
    assert_eq!(sotw_content(&stream.next().await.expect("a response")), content(&["a"], "2"));
}

/// Other types are served meanwhile.
async fn is_well_after_panic(server: &FakeServer) {
    let client = AdsClient::connect(server.address, "10.0.0.9").await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    let kind = Listener;
    stream.subscribe(kind, &[], "").await.expect("an open stream");
    assert_eq!(stream.next().await.expect("a response").type_url, kind.url());
}

#[tokio::test]
async fn proxies_of_one_view_share_one_build() {
    let server = server(Cluster, &["a", "b"]).await;
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut streams = Vec::new();
    for number in 0..50 {
        let id = format!("sidecar~10.0.1.{number}~p{number}.test~test.svc.cluster.local");
        let mut stream = client.with_node(Node { id, ..Node::default() }).sotw(None).await.expect("a stream");
        stream.subscribe(Cluster, &[], "").await.expect("an open stream");
        let response = stream.next().await.expect("a response");
        stream.subscribe(Cluster, &[], &response.nonce).await.expect("an open stream");
        streams.push(stream);
    }
    assert_eq!(server.state.views().len(), 1);
    let before = server.state.build_counts().0;
    set(&server, Cluster, &["a"], "2");
    for stream in &mut streams {
        let response = stream.next().await.expect("a response");
        assert_eq!(sotw_content(&response).get("a").map(String::as_str), Some("2"));
    }
    assert_eq!(server.state.build_counts().0 - before, 1, "one build for fifty proxies");
}

#[tokio::test]
async fn shutting_down_ends_open_streams() {
    let server = server(Cluster, &["a"]).await;
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    stream.subscribe(Cluster, &[], "").await.expect("an open stream");
    stream.next().await.expect("a response");
    server.shut_down();
    match stream.next().await {
        Err(ClientError::Status(status)) => assert_eq!(status.code(), Code::Unavailable),
        other => panic!("{other:?}"),
    }
}
