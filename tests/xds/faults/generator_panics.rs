//! A generator that panics.

use crate::{content, server, set, sotw_content, watch_clusters};
use pilothouse::{
    testing::{AdsClient, FakeServer},
    xds::ResourceType::{Cluster, Listener},
};

#[tokio::test]
async fn a_generator_that_panics_costs_only_its_resources() {
    let server = server(Cluster, &["a"]).await;
    let mut stream = watch_clusters(&server).await;
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
