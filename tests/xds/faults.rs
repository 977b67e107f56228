//! Clients that are hostile, broken or slow, one file for each way: their own stream may end, nothing else.

mod asks_without_end;
mod bad_first_request;
mod generator_panics;
mod half_open;
mod many_at_once;
mod never_answers;
mod never_reads;
mod noise;
mod not_ready;
mod refuses_for_ever;
mod silent;
mod unknown_type;

use pilothouse::{
    proto::envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryRequest},
    testing::{AdsClient, ClientError, FakeServer},
    xds::ResourceType::Cluster,
};
use tonic::Code;

use super::{Content, content, sotw_content};

/// What a stream that starts with this request ends with.
async fn end_of(server: &FakeServer, node: Option<&str>, request: DiscoveryRequest) -> Code {
    let node = Node { id: node.unwrap_or_default().into(), ..Node::default() };
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

/// What a client that does nothing wrong is answered.
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
