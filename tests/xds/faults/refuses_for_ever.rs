//! A client that refuses whatever it is sent.

use super::answer;
use crate::{content, server, set, sotw_content, watch_clusters};
use pilothouse::xds::ResourceType::Cluster;

#[tokio::test]
async fn a_client_that_refuses_for_ever_is_answered_once_for_each_change() {
    let server = server(Cluster, &["a"]).await;
    let mut stream = watch_clusters(&server).await;
    for version in 1..50 {
        let response = stream.next().await.expect("a response");
        assert_eq!(sotw_content(&response), content(&["a"], &version.to_string()));
        stream.refuse(&response, &[]).await.expect("an open stream");
        set(&server, Cluster, &["a"], &(version + 1).to_string());
    }
    assert_eq!(answer(&server, "10.0.0.9").await, content(&["a"], "50"));
}
