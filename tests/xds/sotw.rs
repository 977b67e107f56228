//! State-of-the-world scenarios of the xDS conformance harness, each on the aggregated and on the single-type service.
//!
//! "The server does not respond" is seen without waiting: requests of one stream are handled in their order, so the answer
//! to a later question must be the next thing that comes.

use std::time::Duration;

use super::{TYPES, content, server, server_that_sends_again, set, sotw_content, watch_clusters};
use pilothouse::{
    proto::envoy::service::discovery::v3::DiscoveryResponse,
    testing::{AdsClient, Content, FakeServer, SotwStream},
    xds::ResourceType::{self, Cluster, Endpoint, Listener, Route},
};

struct Client {
    kind: ResourceType,
    names: Vec<&'static str>,
    stream: SotwStream,
}

impl Client {
    /// One client on the aggregated service, one on the service of the type.
    async fn both(server: &FakeServer, kind: ResourceType) -> [Self; 2] {
        let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
        let aggregated = client.sotw(None).await.expect("a stream");
        let single = client.sotw(Some(kind)).await.expect("a stream");
        [aggregated, single].map(|stream| Self { kind, names: vec![], stream })
    }

    async fn subscribe(&mut self, names: &[&'static str], nonce: &str) {
        self.names = names.to_vec();
        self.stream.subscribe(self.kind, names, nonce).await.expect("an open stream");
    }

    async fn receive(&mut self, want: &Content) -> DiscoveryResponse {
        let response = self.stream.next().await.expect("a response");
        assert_eq!(response.type_url, self.kind.url());
        assert_eq!(&sotw_content(&response), want, "{:?}", self.kind);
        response
    }

    async fn ack(&mut self, response: &DiscoveryResponse) {
        let names = self.names.clone();
        self.stream.subscribe(self.kind, &names, &response.nonce).await.expect("an open stream");
    }

    /// Accepts a response, and then sees that nothing but the answer to a fresh subscription comes.
    async fn ack_in_silence(&mut self, response: &DiscoveryResponse) {
        self.ack(response).await;
        self.expect_silence().await;
    }

    /// A subscription that starts over (it names no nonce) is always answered, so nothing may come before its answer.
    async fn expect_silence(&mut self) {
        self.stream.subscribe(self.kind, &["barrier"], "").await.expect("an open stream");
        let response = self.stream.next().await.expect("a response");
        assert_eq!(sotw_content(&response), content(&["barrier"], "1"), "{:?}: nothing else was to come", self.kind);
    }
}

/// A server with these names at version 1 and the resource that [`Client::expect_silence`] asks for.
async fn with_barrier(kind: ResourceType, names: &[&'static str]) -> FakeServer {
    let all: Vec<_> = names.iter().copied().chain(["barrier"]).collect();
    server(kind, &all).await
}

fn whole(kind: ResourceType) -> bool {
    matches!(kind, Cluster | Listener)
}

#[tokio::test]
async fn a_wildcard_request_gets_everything() {
    for kind in [Cluster, Listener] {
        let server = with_barrier(kind, &["a", "b", "c"]).await;
        for mut client in Client::both(&server, kind).await {
            client.subscribe(&[], "").await;
            let response = client.receive(&content(&["a", "b", "barrier", "c"], "1")).await;
            assert!(!response.version_info.is_empty() && !response.nonce.is_empty());
            client.ack_in_silence(&response).await;
        }
    }
}

#[tokio::test]
async fn a_wildcard_subscription_gets_updates_and_additions() {
    for kind in [Cluster, Listener] {
        let server = with_barrier(kind, &["a", "b"]).await;
        let mut clients = Client::both(&server, kind).await;
        let mut want = content(&["a", "b", "barrier"], "1");
        for client in &mut clients {
            client.subscribe(&[], "").await;
            let response = client.receive(&want).await;
            client.ack(&response).await;
        }
        for (name, version) in [("a", "2"), ("d", "1")] {
            set(&server, kind, &[name], version);
            want.insert(name.into(), version.into());
            for client in &mut clients {
                let response = client.receive(&want).await;
                client.ack(&response).await;
            }
        }
        for client in &mut clients {
            client.expect_silence().await;
        }
    }
}

#[tokio::test]
async fn a_subscription_by_name_gets_only_these() {
    for kind in TYPES {
        let server = with_barrier(kind, &["a", "b", "c", "d"]).await;
        for mut client in Client::both(&server, kind).await {
            client.subscribe(&["b", "d"], "").await;
            let response = client.receive(&content(&["b", "d"], "1")).await;
            client.ack_in_silence(&response).await;
        }
    }
}

#[tokio::test]
async fn a_subscription_by_name_gets_changes_of_these() {
    for kind in TYPES {
        let server = with_barrier(kind, &["a", "b", "c", "d"]).await;
        let mut clients = Client::both(&server, kind).await;
        for client in &mut clients {
            client.subscribe(&["b", "d"], "").await;
            let response = client.receive(&content(&["b", "d"], "1")).await;
            client.ack(&response).await;
            // The acknowledgement has been taken when this is answered, so the change below finds no open response.
            client.subscribe(&["b", "d"], "").await;
            let response = client.receive(&content(&["b", "d"], "1")).await;
            client.ack(&response).await;
        }
        set(&server, kind, &["a", "b"], "2");
        for client in &mut clients {
            let mut want = content(&["b"], "2");
            if whole(kind) {
                want.extend(content(&["d"], "1"));
            }
            let response = client.receive(&want).await;
            client.ack_in_silence(&response).await;
        }
    }
}

#[tokio::test]
async fn a_name_that_does_not_exist_comes_when_it_does() {
    for kind in TYPES {
        let server = with_barrier(kind, &["a", "b"]).await;
        let mut clients = Client::both(&server, kind).await;
        for client in &mut clients {
            client.subscribe(&["a", "z"], "").await;
            let response = client.receive(&content(&["a"], "1")).await;
            client.ack(&response).await;
        }
        set(&server, kind, &["z"], "1");
        for client in &mut clients {
            let want = if whole(kind) { content(&["a", "z"], "1") } else { content(&["z"], "1") };
            let response = client.receive(&want).await;
            client.ack_in_silence(&response).await;
        }
    }
}

#[tokio::test]
async fn names_that_are_given_up_bring_nothing() {
    for kind in TYPES {
        let server = with_barrier(kind, &["a", "b", "c"]).await;
        for mut client in Client::both(&server, kind).await {
            set(&server, kind, &["a", "b", "c"], "1");
            client.subscribe(&["a", "b", "c"], "").await;
            let response = client.receive(&content(&["a", "b", "c"], "1")).await;
            client.subscribe(&["a", "c"], &response.nonce).await;
            client.expect_silence().await;
            client.subscribe(&["a", "c"], "").await;
            let response = client.receive(&content(&["a", "c"], "1")).await;
            client.ack(&response).await;
            set(&server, kind, &["b"], "2");
            set(&server, kind, &["a"], "2");
            let mut want = content(&["a"], "2");
            if whole(kind) {
                want.extend(content(&["c"], "1"));
            }
            let response = client.receive(&want).await;
            client.ack_in_silence(&response).await;
        }
    }
}

#[tokio::test]
async fn a_client_that_unsubscribes_from_all_names_gets_nothing() {
    for kind in TYPES {
        let server = with_barrier(kind, &["a", "b"]).await;
        for mut client in Client::both(&server, kind).await {
            set(&server, kind, &["a", "b"], "1");
            client.subscribe(&["a", "b"], "").await;
            let response = client.receive(&content(&["a", "b"], "1")).await;
            client.subscribe(&[], &response.nonce).await;
            set(&server, kind, &["a", "b"], "2");
            client.expect_silence().await;
        }
    }
}

#[tokio::test]
async fn several_types_share_one_stream() {
    for (one, other) in [(Cluster, Listener), (Route, Endpoint)] {
        let server = server(one, &["a", "b", "c"]).await;
        set(&server, other, &["a", "b", "c"], "1");
        let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
        let mut stream = client.sotw(None).await.expect("a stream");
        for kind in [one, other] {
            stream.subscribe(kind, &["b"], "").await.expect("an open stream");
            let response = stream.next().await.expect("a response");
            assert_eq!((&*response.type_url, sotw_content(&response)), (kind.url(), content(&["b"], "1")));
            stream.subscribe(kind, &["b"], &response.nonce).await.expect("an open stream");
        }
        set(&server, one, &["b"], "2");
        let response = stream.next().await.expect("a response");
        assert_eq!((&*response.type_url, sotw_content(&response)), (one.url(), content(&["b"], "2")));
        stream.subscribe(one, &["b"], &response.nonce).await.expect("an open stream");
        set(&server, other, &["b"], "3");
        let response = stream.next().await.expect("a response");
        assert_eq!((&*response.type_url, sotw_content(&response)), (other.url(), content(&["b"], "3")));
    }
}

#[tokio::test]
async fn endpoints_are_sent_again_after_their_clusters() {
    let server = server(Cluster, &["a", "b"]).await;
    set(&server, Endpoint, &["a", "b"], "1");
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    for (kind, names) in [(Cluster, &[][..]), (Endpoint, &["a", "b"])] {
        stream.subscribe(kind, names, "").await.expect("an open stream");
        let response = stream.next().await.expect("a response");
        assert_eq!(sotw_content(&response), content(&["a", "b"], "1"));
        stream.subscribe(kind, names, &response.nonce).await.expect("an open stream");
    }
    set(&server, Cluster, &["a"], "2");
    let response = stream.next().await.expect("a response");
    assert_eq!(response.type_url, Cluster.url());
    let response = stream.next().await.expect("a response");
    assert_eq!((&*response.type_url, sotw_content(&response)), (Endpoint.url(), content(&["a"], "1")));
}

#[tokio::test]
async fn refused_content_is_sent_again_only_when_it_changes() {
    let server = server(Cluster, &["a"]).await;
    let mut stream = watch_clusters(&server).await;
    let response = stream.next().await.expect("a response");
    stream.refuse(&response, &[]).await.expect("an open stream");
    set(&server, Cluster, &["a"], "1");
    stream.subscribe(Listener, &[], "").await.expect("an open stream");
    assert_eq!(stream.next().await.expect("a response").type_url, Listener.url());
    let status = server.state.connections()[0].status(Cluster);
    assert_eq!((status.rejects, &*status.last_error), (1, "refused by the test"));
    set(&server, Cluster, &["a"], "2");
    let response = stream.next().await.expect("a response");
    assert_eq!(sotw_content(&response), content(&["a"], "2"));
}

#[tokio::test]
async fn refused_content_is_sent_again_after_a_pause() {
    let server = server_that_sends_again(Cluster, &["a"], Duration::from_millis(20)).await;
    let mut stream = watch_clusters(&server).await;
    for _ in 0..3 {
        let response = stream.next().await.expect("a response");
        assert_eq!(sotw_content(&response), content(&["a"], "1"));
        stream.refuse(&response, &[]).await.expect("an open stream");
    }
}

#[tokio::test]
async fn of_equal_node_ids_the_newest_connection_is_meant() {
    let server = server(Cluster, &["a"]).await;
    let mut older = watch_clusters(&server).await;
    older.next().await.expect("a response");
    let mut newer = watch_clusters(&server).await;
    newer.next().await.expect("a response");
    let [first, second] = &server.state.connections()[..] else { panic!("two connections") };
    assert_eq!(first.node.id, second.node.id);
    let found = |id: &str| server.state.connection(id).expect("a connection").id.clone();
    assert_eq!((found(&first.node.id), found(&first.id)), (second.id.clone(), first.id.clone()));
}
