//! A client with unlimited names, known and unknown, and one with unlimited nodes.

use pilothouse::{
    proto::envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryRequest},
    testing::{AdsClient, ClientError, FakeServer, SotwStream},
    xds::{
        ResourceType::{self, Cluster, Endpoint, Secret},
        XdsOptions,
    },
};
use tonic::Code;

use super::{is_well, keeps_less_than, resident, size, until_load};
use crate::set;

fn names(stream: usize, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("outbound|80||nobody-{stream}-{number}")).collect()
}

async fn ask(stream: &mut SotwStream, kind: ResourceType, names: Vec<String>) -> Result<(), ClientError> {
    let request = DiscoveryRequest { type_url: kind.url().into(), resource_names: names, ..Default::default() };
    stream.send(request).await?;
    stream.next().await.map(drop)
}

fn is_refused(result: &Result<(), ClientError>) -> bool {
    matches!(result, Err(ClientError::Status(status)) if status.code() == Code::ResourceExhausted)
}

#[tokio::test]
async fn unknown_names_are_bound_for_each_connection() {
    let server = FakeServer::start(XdsOptions::default()).await.expect("a free port");
    set(&server, Cluster, &["a"], "1");
    is_well(&server).await;
    let before = resident();
    let mut held = Vec::new();
    for connection in 0..size(1, 8) {
        let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
        let mut refused = 0;
        for number in 0..2 {
            let mut stream = client.sotw(None).await.expect("a stream");
            let result = ask(&mut stream, Endpoint, names(connection * 10 + number, 60_000)).await;
            refused += usize::from(is_refused(&result));
            held.push(stream);
        }
        assert_eq!(refused, 1, "a connection has room for 100,000 of them");
        is_well(&server).await;
    }
    assert!(server.state.load().unknown_names <= 1_000_000);
    drop(held);
    until_load(&server, |load| load.unknown_names == 0).await;
    is_well(&server).await;
    keeps_less_than(150, before);
}

#[tokio::test]
async fn names_that_are_known_do_not_count() {
    let server = FakeServer::start(XdsOptions::default()).await.expect("a free port");
    set(&server, Cluster, &["a"], "1");
    let known: Vec<String> = names(0, 2000);
    set(&server, Endpoint, &known.iter().map(String::as_str).collect::<Vec<_>>(), "1");
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    ask(&mut stream, Endpoint, [known, names(1, 10)].concat()).await.expect("a response");
    assert_eq!(server.state.load().unknown_names, 10);
}

#[tokio::test]
async fn secrets_of_one_stream_are_bound() {
    let server = FakeServer::start(XdsOptions::default()).await.expect("a free port");
    set(&server, Cluster, &["a"], "1");
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    let result = ask(&mut stream, Secret, names(0, 10_001)).await;
    assert!(is_refused(&result), "{result:?}");
    is_well(&server).await;
}

#[tokio::test]
async fn nodes_are_bound_for_each_connection() {
    let server = FakeServer::start(XdsOptions::default()).await.expect("a free port");
    set(&server, Cluster, &["a"], "1");
    is_well(&server).await;
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let (mut held, mut refused) = (Vec::new(), 0);
    for number in 0..100 {
        let id = format!("sidecar~10.0.0.1~client-{number}.test~test.svc.cluster.local");
        let node = Node { id, cluster: "x".repeat(200_000), ..Node::default() };
        let mut stream = client.with_node(node).sotw(None).await.expect("a stream");
        let result = ask(&mut stream, Cluster, Vec::new()).await;
        refused += usize::from(is_refused(&result));
        assert!(result.is_ok() || is_refused(&result), "{result:?}");
        held.push(stream);
    }
    assert!(
        (15..30).contains(&refused),
        "a connection has room for 16 MB of nodes: {refused} of 100 streams are refused"
    );
    is_well(&server).await;
    drop(held);
    until_load(&server, |load| load.node_bytes < 200_000).await;
    is_well(&server).await;
}

#[tokio::test]
async fn known_names_are_bound_for_each_connection_and_for_all() {
    let options = XdsOptions { names: (3000, 1500), ..XdsOptions::default() };
    let server = FakeServer::start(options).await.expect("a free port");
    set(&server, Cluster, &["a"], "1");
    let known: Vec<Vec<String>> = (0..8).map(|number| names(number, 1400)).collect();
    set(&server, Endpoint, &known.iter().flatten().map(String::as_str).collect::<Vec<_>>(), "1");
    is_well(&server).await;
    until_load(&server, |load| load.names == 0).await;
    let mut held = Vec::new();
    let connect = || async { AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection") };
    let first = connect().await;
    // Two streams with equal lists, and one more with another list.
    for (list, fits) in [(&known[0], true), (&known[0], true), (&known[1], false)] {
        let mut stream = first.sotw(None).await.expect("a stream");
        let result = ask(&mut stream, Endpoint, list.clone()).await;
        assert_eq!((result.is_ok(), is_refused(&result)), (fits, !fits), "{result:?}");
        held.push(stream);
    }
    assert_eq!(server.state.load().names, 1400, "equal lists count once");
    let mut refused = 0;
    for list in &known[1..] {
        let mut stream = connect().await.sotw(None).await.expect("a stream");
        let result = ask(&mut stream, Endpoint, list.clone()).await;
        assert!(result.is_ok() || is_refused(&result), "{result:?}");
        refused += usize::from(is_refused(&result));
        held.push(stream);
        is_well(&server).await;
    }
    assert_eq!(refused, 6, "all connections have room for 3000");
    // Those that ask for less than a fair part are served.
    let mut modest = connect().await.sotw(None).await.expect("a stream");
    ask(&mut modest, Endpoint, known[7][..200].to_vec()).await.expect("a response");
    drop((held, modest));
    until_load(&server, |load| load.names == 0).await;
    is_well(&server).await;
}

#[tokio::test]
async fn nodes_are_bound_over_all_connections() {
    let options = XdsOptions { node_bytes: (1 << 20, 16 << 20), ..XdsOptions::default() };
    let server = FakeServer::start(options).await.expect("a free port");
    set(&server, Cluster, &["a"], "1");
    is_well(&server).await;
    let (mut held, mut refused) = (Vec::new(), 0);
    for number in 0..20 {
        let id = format!("sidecar~10.0.0.1~client-{number}.test~test.svc.cluster.local");
        let node = Node { id, cluster: "x".repeat(200_000), ..Node::default() };
        let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
        let mut stream = client.with_node(node).sotw(None).await.expect("a stream");
        let result = ask(&mut stream, Cluster, Vec::new()).await;
        assert!(result.is_ok() || is_refused(&result), "{result:?}");
        refused += usize::from(is_refused(&result));
        held.push(stream);
        is_well(&server).await;
    }
    assert!((10..16).contains(&refused), "all connections have room for 1 MB: {refused} of 20 are refused");
    assert!(server.state.load().node_bytes <= 2 << 20);
    drop(held);
    until_load(&server, |load| load.node_bytes < 200_000).await;
}
