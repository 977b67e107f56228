//! Clients that come in the middle of a publication.

use std::{sync::Arc, time::Duration};

use super::{content, server, sotw_content};
use pilothouse::{
    model::{PushKey, PushRequest, Reason, push_request::PushKind},
    testing::{AdsClient, FakeServer},
    xds::ResourceType::Cluster,
};

/// Publishes a change on a thread of its own and gives control back when it is in force and nothing is marked.
async fn begin_publication(server: &Arc<FakeServer>, text: &'static str) -> tokio::task::JoinHandle<()> {
    server.hold(true);
    let before = server.state.current().map(|p| p.version);
    let publisher = server.clone();
    let publication = tokio::task::spawn_blocking(move || {
        let key = PushKey { kind: PushKind::Endpoints, name: "a".into(), namespace: "b".into() };
        publisher.set_by(&[(Cluster, "a", Some(text))], &PushRequest::of(key, Reason::Config));
    });
    while server.state.current().map(|p| p.version) == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    publication
}

#[tokio::test]
async fn a_client_that_connects_while_a_publication_is_being_marked_gets_it() {
    let server = Arc::new(server(Cluster, &["a"]).await);
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut early = client.sotw(None).await.expect("a stream");
    early.subscribe(Cluster, &[], "").await.expect("an open stream");
    let response = early.next().await.expect("a response");
    early.subscribe(Cluster, &[], &response.nonce).await.expect("an open stream");

    let publication = begin_publication(&server, "2").await;
    assert!(server.state.propagated_version() < server.state.current().expect("a publication").version);
    // The shared view holds its old content: the next response is outdated.
    let mut late = client.sotw(None).await.expect("a stream");
    late.subscribe(Cluster, &[], "").await.expect("an open stream");
    let response = late.next().await.expect("a response");
    assert_eq!(sotw_content(&response), content(&["a"], "1"));
    late.subscribe(Cluster, &[], &response.nonce).await.expect("an open stream");
    server.hold(false);
    publication.await.expect("a publication");
    for stream in [&mut early, &mut late] {
        assert_eq!(sotw_content(&stream.next().await.expect("the change")), content(&["a"], "2"));
    }
}
