//! Peers that open connections and say nothing, more than there is room for.

use std::time::Duration;

use pilothouse::{
    testing::FakeServer,
    xds::{ResourceType::Cluster, XdsOptions},
};
use tokio::{io::AsyncReadExt, net::TcpStream};

use super::{answer, is_well, size, until_load};
use crate::{content, set, sotw_content, watch_clusters};

async fn silent(server: &FakeServer, count: usize) -> Vec<TcpStream> {
    let mut sockets = Vec::new();
    for _ in 0..count {
        sockets.push(TcpStream::connect(server.address).await.expect("a connection"));
    }
    sockets
}

#[tokio::test]
async fn silent_sockets_are_closed_after_a_while() {
    let options = XdsOptions { preface: Duration::from_millis(200), ..XdsOptions::default() };
    let server = FakeServer::start(options).await.expect("a free port");
    set(&server, Cluster, &["a"], "1");
    let mut stream = watch_clusters(&server).await;
    stream.next().await.expect("a response");
    for mut socket in silent(&server, 100).await {
        let mut bytes = [0; 16];
        let closed = tokio::time::timeout(Duration::from_secs(60), async {
            while socket.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
        });
        closed.await.expect("the server hangs up");
    }
    until_load(&server, |load| load.connections == 1).await;
    set(&server, Cluster, &["a"], "2");
    stream.subscribe(Cluster, &[], "").await.expect("an active client is not closed");
    assert_eq!(answer(&server, "10.0.0.9").await, content(&["a"], "2"));
}

#[tokio::test]
async fn silent_sockets_make_room_for_those_that_speak() {
    let options = XdsOptions { max_connections: 20, ..XdsOptions::default() };
    let server = FakeServer::start(options).await.expect("a free port");
    set(&server, Cluster, &["a"], "1");
    let mut stream = watch_clusters(&server).await;
    let first = stream.next().await.expect("a response");
    let held = silent(&server, size(300, 4000)).await;
    until_load(&server, |load| load.connections == 20).await;
    for _ in 0..10 {
        is_well(&server).await;
    }
    stream.subscribe(Cluster, &[], &first.nonce).await.expect("an open stream");
    set(&server, Cluster, &["a"], "2");
    assert_eq!(sotw_content(&stream.next().await.expect("a response")), content(&["a"], "2"));
    drop(held);
}
