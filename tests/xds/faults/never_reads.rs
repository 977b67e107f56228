//! A client that does not read its responses.

use std::time::Duration;

use super::is_well;
use crate::set;
use pilothouse::{
    testing::{AdsClient, FakeServer},
    xds::{
        ResourceType::{Cluster, Listener, NameTable},
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
