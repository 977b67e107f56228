//! A client that acknowledges nothing: newer content waits, the last of it goes out when an answer comes.

use super::answer;
use crate::{content, server, set, sotw_content, watch_clusters};
use pilothouse::xds::ResourceType::Cluster;

#[tokio::test]
async fn newer_content_replaces_the_waiting_response() {
    let server = server(Cluster, &["a"]).await;
    let mut stream = watch_clusters(&server).await;
    let first = stream.next().await.expect("a response");
    for version in 2..=50 {
        set(&server, Cluster, &["a"], &version.to_string());
        assert_eq!(answer(&server, "10.0.0.9").await, content(&["a"], &version.to_string()), "others are served");
    }
    stream.subscribe(Cluster, &[], &first.nonce).await.expect("an open stream");
    assert_eq!(sotw_content(&stream.next().await.expect("a response")), content(&["a"], "50"));
}
