//! Clients that are hostile, broken or slow, one file for each way: their own stream may end, nothing else.
//!
//! The attacks are small here. With `PILOTHOUSE_LONG_ATTACKS=1 cargo test --release --test xds faults -- --test-threads 1` they
//! are as large as those of a real attacker, and the memory that stays afterwards is judged too.

mod asks_without_end;
mod bad_first_request;
mod changes_without_end;
mod debug_pages;
mod generator_panics;
mod half_messages;
mod half_open;
mod large_nodes;
mod many_at_once;
mod many_names;
mod never_answers;
mod never_reads;
mod new_views;
mod noise;
mod not_ready;
mod old_age;
mod refuses_for_ever;
mod silent;
mod silent_sockets;
mod unknown_type;

use std::time::Duration;

use pilothouse::{
    discovery::Load,
    proto::envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryRequest},
    testing::{AdsClient, ClientError, FakeServer},
    xds::ResourceType::Cluster,
};
use tonic::Code;

use super::{Content, content, sotw_content};

/// The final status of a stream that starts with this request.
async fn end_of(server: &FakeServer, node: Option<&str>, request: DiscoveryRequest) -> Code {
    end_of_node(server, Node { id: node.unwrap_or_default().into(), ..Node::default() }, request).await
}

/// The final status of a stream of this node that starts with this request.
async fn end_of_node(server: &FakeServer, node: Node, request: DiscoveryRequest) -> Code {
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection").with_node(node);
    let mut stream = client.sotw(None).await.expect("a stream");
    // A server that refuses at once may close the stream before it is asked anything.
    let _ = stream.send(request).await;
    loop {
        match stream.next().await {
            Ok(_) => {}
            Err(ClientError::Status(status)) => return status.code(),
            Err(other) => panic!("{other}"),
        }
    }
}

fn ask(names: Vec<String>) -> DiscoveryRequest {
    DiscoveryRequest { type_url: Cluster.url().into(), resource_names: names, ..DiscoveryRequest::default() }
}

/// The size of an attack: this for every run of the tests, and that for the long form.
fn size(short: usize, long: usize) -> usize {
    if std::env::var_os("PILOTHOUSE_LONG_ATTACKS").is_some() { long } else { short }
}

/// The long form judges memory: less than this many MB stay of an attack.
fn keeps_less_than(megabytes: usize, before: usize) {
    let stays = resident().saturating_sub(before);
    assert!(size(0, 1) == 0 || stays < megabytes, "{stays} MB stay");
}

/// Resident memory of this process in MB.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
    pages * 4 / 1024
}

/// Waits until this holds of the resources that clients occupy.
async fn until_load(server: &FakeServer, holds: impl Fn(&Load) -> bool) {
    let wait = async {
        while !holds(&server.state.load()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(120), wait).await;
    assert!(waited.is_ok(), "{:?}", server.state.load());
}

/// The answer to a correct client.
async fn answer(server: &FakeServer, ip: &str) -> Content {
    let client = AdsClient::connect(server.address, ip).await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    stream.subscribe(Cluster, &["a"], "").await.expect("an open stream");
    sotw_content(&stream.next().await.expect("a response"))
}

/// The server goes on serving others.
async fn is_well(server: &FakeServer) {
    assert_eq!(answer(server, "10.0.0.9").await, content(&["a"], "1"));
}
