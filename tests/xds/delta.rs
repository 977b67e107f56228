//! Delta scenarios of the xDS conformance harness, each on the aggregated and on the single-type service.

use std::{collections::BTreeMap, time::Duration};

use super::{TYPES, content, delta_content, server, server_that_sends_again, set};
use pilothouse::{
    proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
    testing::{AdsClient, Content, DeltaStream, FakeServer},
    xds::ResourceType::{self, Cluster, Endpoint},
};

struct Client {
    kind: ResourceType,
    stream: DeltaStream,
}

impl Client {
    /// One client on the aggregated service, one on the service of the type.
    async fn both(server: &FakeServer, kind: ResourceType) -> [Self; 2] {
        let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
        let aggregated = client.delta(None).await.expect("a stream");
        let single = client.delta(Some(kind)).await.expect("a stream");
        [aggregated, single].map(|stream| Self { kind, stream })
    }

    async fn change(&mut self, add: &[&str], remove: &[&str]) {
        self.stream.change(self.kind, add, remove).await.expect("an open stream");
    }

    /// Takes a response with just this in it, and accepts it.
    async fn receive(&mut self, want: &Content, gone: &[&str]) -> DeltaDiscoveryResponse {
        let response = self.stream.next().await.expect("a response");
        assert_eq!(response.type_url, self.kind.url());
        assert_eq!(
            (&delta_content(&response), &response.removed_resources[..]),
            (want, &gone.to_vec().iter().map(ToString::to_string).collect::<Vec<_>>()[..])
        );
        self.stream.accept(&response).await.expect("an open stream");
        response
    }

    /// Nothing may come before the answer to a new subscription.
    async fn expect_silence(&mut self) {
        self.change(&["barrier"], &[]).await;
        self.receive(&content(&["barrier"], "1"), &[]).await;
    }
}

async fn with_barrier(kind: ResourceType, names: &[&'static str]) -> FakeServer {
    let all: Vec<_> = names.iter().copied().chain(["barrier"]).collect();
    server(kind, &all).await
}

/// Runs a scenario for every type, on both services, with a server that holds these names.
async fn each(names: &[&'static str], scenario: impl AsyncFn(&FakeServer, ResourceType, &mut Client)) {
    for kind in TYPES {
        let server = with_barrier(kind, names).await;
        for mut client in Client::both(&server, kind).await {
            scenario(&server, kind, &mut client).await;
        }
    }
}

#[tokio::test]
async fn names_are_subscribed_to_one_after_the_other() {
    each(&["a", "b", "c"], async |_, _, client| {
        client.change(&["a"], &[]).await;
        client.receive(&content(&["a"], "1"), &[]).await;
        client.change(&["b"], &[]).await;
        client.receive(&content(&["b"], "1"), &[]).await;
        client.expect_silence().await;
    })
    .await;
}

#[tokio::test]
async fn only_changed_resources_are_sent() {
    each(&["a", "b", "c"], async |server, kind, client| {
        set(server, kind, &["a"], "1");
        client.change(&["a", "b", "c"], &[]).await;
        let first = client.receive(&content(&["a", "b", "c"], "1"), &[]).await;
        set(server, kind, &["a"], "2");
        let second = client.receive(&content(&["a"], "2"), &[]).await;
        assert_ne!(first.nonce, second.nonce);
        let version =
            |r: &DeltaDiscoveryResponse| r.resources.iter().find(|r| r.name == "a").map(|r| r.version.clone());
        assert_ne!(version(&first), version(&second));
        client.expect_silence().await;
    })
    .await;
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_told_and_comes_when_it_does() {
    each(&["a"], async |server, kind, client| {
        server.set(&[(kind, "b", None)]);
        client.change(&["a", "b"], &[]).await;
        client.receive(&content(&["a"], "1"), &["b"]).await;
        set(server, kind, &["b"], "1");
        client.receive(&content(&["b"], "1"), &[]).await;
        client.expect_silence().await;
    })
    .await;
}

#[tokio::test]
async fn a_removed_resource_is_told_and_may_come_back() {
    each(&["a", "b"], async |server, kind, client| {
        set(server, kind, &["a", "b"], "1");
        client.change(&["a", "b"], &[]).await;
        client.receive(&content(&["a", "b"], "1"), &[]).await;
        server.set(&[(kind, "b", None)]);
        client.receive(&Content::new(), &["b"]).await;
        set(server, kind, &["b"], "2");
        client.receive(&content(&["b"], "2"), &[]).await;
        client.expect_silence().await;
    })
    .await;
}

#[tokio::test]
async fn names_that_are_given_up_bring_nothing() {
    each(&["a", "b"], async |server, kind, client| {
        set(server, kind, &["a", "b"], "1");
        client.change(&["a", "b"], &[]).await;
        client.receive(&content(&["a", "b"], "1"), &[]).await;
        client.change(&[], &["b", "never-asked-for"]).await;
        // The first barrier shows that the request was taken, the second that the changes brought nothing.
        client.expect_silence().await;
        set(server, kind, &["b"], "2");
        client.change(&[], &["a"]).await;
        client.change(&["c"], &[]).await;
        client.receive(&Content::new(), &["c"]).await;
        set(server, kind, &["a"], "2");
        set(server, kind, &["c"], "1");
        client.receive(&content(&["c"], "1"), &[]).await;
        server.set(&[(kind, "c", None)]);
        client.receive(&Content::new(), &["c"]).await;
    })
    .await;
}

#[tokio::test]
async fn wildcards_get_everything_and_then_changes() {
    let server = server(Cluster, &["a", "b"]).await;
    for mut client in Client::both(&server, Cluster).await {
        server.set(&[(Cluster, "a", Some("1")), (Cluster, "c", None)]);
        client.change(&["*"], &[]).await;
        client.receive(&content(&["a", "b"], "1"), &[]).await;
        server.set(&[(Cluster, "a", None), (Cluster, "c", Some("1"))]);
        client.receive(&content(&["c"], "1"), &["a"]).await;
    }
}

#[tokio::test]
async fn a_client_that_reconnects_gets_only_missing_resources() {
    for kind in [Cluster, Endpoint] {
        let server = with_barrier(kind, &["a", "b", "c"]).await;
        for mut client in Client::both(&server, kind).await {
            server.set(&[(kind, "a", Some("1")), (kind, "b", Some("1"))]);
            client.change(&["a", "b", "c"], &[]).await;
            let first = client.receive(&content(&["a", "b", "c"], "1"), &[]).await;
            let versions: BTreeMap<_, _> = first.resources.into_iter().map(|r| (r.name, r.version)).collect();
            let back = |versions: &BTreeMap<String, String>| DeltaDiscoveryRequest {
                type_url: kind.url().into(),
                resource_names_subscribe: ["a", "b", "c"].map(String::from).to_vec(),
                initial_resource_versions: versions.clone(),
                ..DeltaDiscoveryRequest::default()
            };
            let [mut again, _] = Client::both(&server, kind).await;
            again.stream.send(back(&versions)).await.expect("an open stream");
            again.expect_silence().await;

            server.set(&[(kind, "a", None), (kind, "b", Some("2"))]);
            let [mut again, _] = Client::both(&server, kind).await;
            again.stream.send(back(&versions)).await.expect("an open stream");
            again.receive(&content(&["b"], "2"), &["a"]).await;
        }
    }
}

#[tokio::test]
async fn endpoints_follow_their_changed_clusters() {
    let server = server(Cluster, &["a", "b"]).await;
    set(&server, Endpoint, &["a", "b"], "1");
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut stream = client.delta(None).await.expect("a stream");
    for (kind, names) in [(Cluster, &["*"][..]), (Endpoint, &["a", "b"])] {
        stream.change(kind, names, &[]).await.expect("an open stream");
        let response = stream.next().await.expect("a response");
        assert_eq!(delta_content(&response), content(&["a", "b"], "1"));
        stream.accept(&response).await.expect("an open stream");
    }
    set(&server, Cluster, &["b"], "2");
    let response = stream.next().await.expect("a response");
    assert_eq!((&*response.type_url, delta_content(&response)), (Cluster.url(), content(&["b"], "2")));
    let response = stream.next().await.expect("a response");
    assert_eq!((&*response.type_url, delta_content(&response)), (Endpoint.url(), content(&["b"], "1")));
}

#[tokio::test]
async fn refused_content_does_not_hold_up_the_rest() {
    let server = server(Endpoint, &["a", "b"]).await;
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut stream = client.delta(None).await.expect("a stream");
    stream.change(Endpoint, &["a"], &[]).await.expect("an open stream");
    let response = stream.next().await.expect("a response");
    stream.refuse(&response).await.expect("an open stream");
    stream.change(Endpoint, &["b"], &[]).await.expect("an open stream");
    let response = stream.next().await.expect("a response");
    assert_eq!(delta_content(&response), content(&["b"], "1"));
    stream.accept(&response).await.expect("an open stream");
    set(&server, Endpoint, &["a"], "2");
    assert_eq!(delta_content(&stream.next().await.expect("a response")), content(&["a"], "2"));
}

#[tokio::test]
async fn refused_content_is_sent_again_after_a_pause() {
    let server = server_that_sends_again(Endpoint, &["a", "b"], Duration::from_millis(20)).await;
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut stream = client.delta(None).await.expect("a stream");
    stream.change(Endpoint, &["a"], &[]).await.expect("an open stream");
    for _ in 0..3 {
        let response = stream.next().await.expect("a response");
        assert_eq!(delta_content(&response), content(&["a"], "1"));
        stream.refuse(&response).await.expect("an open stream");
    }
}

#[tokio::test]
async fn a_name_that_is_given_up_under_a_wildcard_is_answered() {
    let server = with_barrier(Cluster, &["a"]).await;
    for mut client in Client::both(&server, Cluster).await {
        client.change(&["*", "a", "gone"], &[]).await;
        client.receive(&content(&["a", "barrier"], "1"), &["gone"]).await;
        client.change(&[], &["a", "gone"]).await;
        client.receive(&content(&["a"], "1"), &["gone"]).await;
        client.expect_silence().await;
    }
}
