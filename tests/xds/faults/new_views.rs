//! Nodes that differ each time, so that each needs resources of its own.

use pilothouse::{
    proto::envoy::config::core::v3::Node,
    testing::{AdsClient, ClientError, FakeServer},
    xds::{ResourceType::Cluster, XdsOptions},
};
use tonic::Code;

use super::{answer, keeps_less_than, resident, size, until_load};
use crate::{content, set, sotw_content, watch_clusters};

fn node(number: usize) -> Node {
    let namespace = format!("n{number}");
    Node { id: format!("sidecar~10.0.0.1~a.{namespace}~{namespace}.svc.cluster.local"), ..Node::default() }
}

#[tokio::test]
async fn nothing_stays_of_views_whose_clients_are_gone() {
    let server = FakeServer::start(XdsOptions::default()).await.expect("a free port");
    set(&server, Cluster, &["a"], "1");
    let mut watching = watch_clusters(&server).await;
    let first = watching.next().await.expect("a response");
    watching.subscribe(Cluster, &[], &first.nonce).await.expect("an open stream");
    let (before, own) = (resident(), server.state.load());
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    for number in 0..size(300, 30_000) {
        let mut stream = client.with_node(node(number)).sotw(None).await.expect("a stream");
        stream.subscribe(Cluster, &[], "").await.expect("an open stream");
        assert_eq!(sotw_content(&stream.next().await.expect("a response")), content(&["a"], "1"));
    }
    // No publication is needed for it.
    until_load(&server, |load| (load.views, load.slots) == (own.views, own.slots)).await;
    keeps_less_than(50, before);
    set(&server, Cluster, &["a"], "2");
    assert_eq!(sotw_content(&watching.next().await.expect("a response")), content(&["a"], "2"));
}

#[tokio::test]
async fn new_views_are_let_in_at_a_rate_and_known_ones_at_once() {
    let options = XdsOptions { max_requests_per_second: Some(0.1), ..XdsOptions::default() };
    let server = FakeServer::start(options).await.expect("a free port");
    set(&server, Cluster, &["a"], "1");
    // The first one takes the turn of ten seconds.
    let mut watching = watch_clusters(&server).await;
    watching.next().await.expect("a response");
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let attacks = (0..20).map(|number| {
        let client = client.with_node(node(number));
        async move {
            let mut stream = client.sotw(None).await?;
            stream.subscribe(Cluster, &[], "").await?;
            stream.next().await
        }
    });
    let refused = |result: &Result<_, ClientError>| matches!(result, Err(ClientError::Status(status)) if status.code() == Code::ResourceExhausted);
    let results = futures::future::join_all(attacks).await;
    assert!(results.iter().filter(|result| refused(result)).count() >= 19, "{results:?}");
    for _ in 0..50 {
        assert_eq!(answer(&server, "10.0.0.1").await, content(&["a"], "1"));
    }
}
