//! Views that connections share, and the end of connections with the server.

use pilothouse::{
    proto::envoy::config::core::v3::Node,
    testing::{AdsClient, ClientError},
    xds::ResourceType::Cluster,
};
use tonic::Code;

use super::{server, set, sotw_content, watch_clusters};

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
    let mut stream = watch_clusters(&server).await;
    stream.next().await.expect("a response");
    server.shut_down();
    match stream.next().await {
        Err(ClientError::Status(status)) => assert_eq!(status.code(), Code::Unavailable),
        other => panic!("{other:?}"),
    }
}
