//! Nodes that say far more than a proxy has to say of itself.

use pilothouse::{
    proto::{envoy::config::core::v3::Node, wkt},
    testing::{AdsClient, FakeServer},
    xds::{ResourceType::Cluster, XdsOptions},
};
use tonic::Code;

use super::{ask, end_of_node, is_well};
use crate::set;

fn metadata(values: usize) -> wkt::Struct {
    let value = wkt::Value { kind: Some(wkt::value::Kind::BoolValue(true)) };
    wkt::Struct { fields: (0..values).map(|number| (number.to_string(), value.clone())).collect() }
}

fn node(values: usize) -> Node {
    let id = "sidecar~10.0.0.1~client.test~test.svc.cluster.local".to_string();
    Node { id, metadata: Some(metadata(values)), ..Node::default() }
}

#[tokio::test]
async fn a_node_of_very_many_values_is_refused() {
    let server = FakeServer::start(XdsOptions::default()).await.expect("a free port");
    set(&server, Cluster, &["a"], "1");
    assert_eq!(end_of_node(&server, node(5000), ask(vec![])).await, Code::InvalidArgument);
    is_well(&server).await;
}

#[tokio::test]
async fn equal_nodes_are_held_once() {
    let server = FakeServer::start(XdsOptions::default()).await.expect("a free port");
    set(&server, Cluster, &["a"], "1");
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection").with_node(node(1000));
    let mut streams = Vec::new();
    for _ in 0..5 {
        let mut stream = client.sotw(None).await.expect("a stream");
        stream.subscribe(Cluster, &[], "").await.expect("an open stream");
        stream.next().await.expect("a response");
        streams.push(stream);
    }
    let connections = server.state.connections();
    assert_eq!(connections.len(), 5);
    let first = &connections[0].node;
    assert!(connections.iter().all(|connection| std::sync::Arc::ptr_eq(first, &connection.node)));
}
