//! Peers that speak no xDS, or speak it without end: others are served as before.

use futures::future::join_all;
use pilothouse::{
    testing::{AdsClient, FakeServer},
    xds::ResourceType::Cluster,
};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::{Content, content, server, set, sotw_content};

/// How many peers come at once: as many as fit the usual limit of open files, both ends being in this process.
const MANY: usize = 400;

async fn answer(server: &FakeServer, ip: &str) -> Content {
    let client = AdsClient::connect(server.address, ip).await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    stream.subscribe(Cluster, &["a"], "").await.expect("an open stream");
    sotw_content(&stream.next().await.expect("a response"))
}

#[tokio::test]
async fn bytes_that_are_no_http_and_peers_that_say_nothing_stop_nobody() {
    let server = server(Cluster, &["a"]).await;
    let mut silent = Vec::new();
    for peer in 0..100_u32 {
        let mut stream = TcpStream::connect(server.address).await.expect("a connection");
        let mut state = peer + 1;
        let noise: Vec<u8> = (0..4096)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            })
            .collect();
        // The server may hang up in the middle; that is what it should do.
        match peer % 3 {
            0 => drop(stream.write_all(&noise).await),
            1 => drop(stream.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &noise].concat()).await),
            _ => silent.push(stream),
        }
    }
    assert_eq!(answer(&server, "10.0.0.9").await, content(&["a"], "1"));
    assert!(silent.len() > 30, "they were open all along");
}

#[tokio::test]
async fn who_refuses_for_ever_is_answered_once_for_each_change() {
    let server = server(Cluster, &["a"]).await;
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    stream.subscribe(Cluster, &[], "").await.expect("an open stream");
    for version in 1..50 {
        let response = stream.next().await.expect("a response");
        assert_eq!(sotw_content(&response), content(&["a"], &version.to_string()));
        stream.refuse(&response, &[]).await.expect("an open stream");
        set(&server, Cluster, &["a"], &(version + 1).to_string());
    }
    assert_eq!(answer(&server, "10.0.0.9").await, content(&["a"], "50"));
}

#[tokio::test]
async fn many_that_come_at_once_are_all_served() {
    let server = server(Cluster, &["a"]).await;
    let answers = join_all((0..MANY).map(|_| answer(&server, "10.0.0.1"))).await;
    assert!(answers.iter().all(|a| *a == content(&["a"], "1")));
}

#[tokio::test]
async fn who_asks_without_end_keeps_nobody_from_being_served() {
    let server = server(Cluster, &["a"]).await;
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    let asking = tokio::spawn(async move {
        let mut asked = 0_u32;
        while asked < 20_000 && stream.subscribe(Cluster, &["a"], "").await.is_ok() {
            asked += 1;
            tokio::task::yield_now().await;
        }
    });
    for version in ["1", "2", "3"] {
        set(&server, Cluster, &["a"], version);
        assert_eq!(answer(&server, "10.0.0.9").await, content(&["a"], version));
    }
    asking.abort();
}
