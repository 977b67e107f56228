//! Clients that do not read their responses.

use std::time::Duration;

use super::{is_well, until_load};
use crate::set;
use pilothouse::{
    testing::{AdsClient, FakeServer, SotwStream},
    xds::{
        ResourceType::{Cluster, Endpoint, Listener, NameTable},
        XdsOptions,
    },
};

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let options = XdsOptions { send_stall: Duration::from_millis(100), ..XdsOptions::default() };
    let server = FakeServer::start(options).await.expect("a free port");
    let big = "x".repeat(8 << 20);
    server.set(&[(Cluster, "a", Some(&big)), (Listener, "a", Some(&big)), (NameTable, "a", Some(&big))]);
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    for kind in [Cluster, Listener, NameTable] {
        stream.subscribe(kind, &[], "").await.expect("an open stream");
    }
    let gone = async {
        while server.state.connections().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        while !server.state.connections().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("the client is cut off");
    set(&server, Cluster, &["a"], "1");
    is_well(&server).await;
}

const BIG: usize = 4 << 20;

/// A client that asks for one load assignment and reads nothing, once the server waits for it.
async fn deaf(server: &FakeServer, number: usize, name: &str) -> (AdsClient, SotwStream) {
    let client = AdsClient::connect(server.address, &format!("10.0.0.{number}")).await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    stream.subscribe(Endpoint, &[name], "").await.expect("an open stream");
    let id = format!("10.0.0.{number}~");
    let is_sent = || {
        let all = server.state.connections();
        all.iter().any(|c| c.node.raw_id.contains(&id) && c.status(Endpoint).sent.is_some())
    };
    let sent = async {
        while !is_sent() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), sent).await.expect("it is sent something");
    (client, stream)
}

/// The last numbers of the addresses that are connected.
fn connected(server: &FakeServer) -> Vec<usize> {
    let number = |id: &str| id.split('~').nth(1)?.rsplit('.').next()?.parse().ok();
    let mut all: Vec<usize> = server.state.connections().iter().filter_map(|c| number(&c.node.raw_id)).collect();
    all.sort_unstable();
    all
}

#[tokio::test]
async fn bytes_that_wait_for_all_clients_are_bounded() {
    let options = XdsOptions { unread: (4 * BIG + BIG / 2, Duration::from_millis(100)), ..XdsOptions::default() };
    let server = FakeServer::start(options).await.expect("a free port");
    let names: Vec<String> = (0..10).map(|number| format!("big-{number}")).collect();
    let contents: Vec<String> = (0..10).map(|number| number.to_string().repeat(BIG)).collect();
    let all: Vec<_> = names.iter().zip(&contents).map(|(name, c)| (Endpoint, &**name, Some(&**c))).collect();
    server.set(&all);
    set(&server, Cluster, &["a"], "1");
    // Clients of one view share what waits for them: all of them stay.
    let mut shared = Vec::new();
    for number in 10..20 {
        shared.push(deaf(&server, number, "big-0").await);
    }
    let load = server.state.load();
    assert!((BIG..BIG + (1 << 16)).contains(&load.unread_bytes), "{load:?}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(connected(&server), (10..20).collect::<Vec<_>>());
    drop(shared);
    until_load(&server, |load| load.unread_bytes == 0).await;
    // Each of a view of its own: those that have waited longest go.
    let mut held = Vec::new();
    for (number, name) in names.iter().enumerate() {
        held.push(deaf(&server, number, name).await);
        is_well(&server).await;
    }
    until_load(&server, |load| load.unread_bytes <= 4 * BIG + BIG / 2).await;
    let gone = async {
        while connected(&server).len() > 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("the connections end");
    assert_eq!(connected(&server), [6, 7, 8, 9]);
    let (client, mut last) = held.pop().expect("a client");
    let response = last.next().await.expect("the last one reads after all");
    assert!(response.resources[0].value.len() >= BIG);
    drop((held, last, client));
    until_load(&server, |load| load.unread_bytes == 0).await;
    is_well(&server).await;
}
