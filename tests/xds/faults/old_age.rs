//! A connection that reaches the greatest age.

use std::time::Duration;

use pilothouse::{
    testing::{AdsClient, ClientError, FakeServer},
    xds::{ResourceType::Cluster, XdsOptions},
};
use tonic::Code;

use super::until_load;
use crate::{content, set, sotw_content};

#[tokio::test]
async fn streams_end_in_good_order_when_their_connection_is_old_and_go_on_over_another() {
    let options = XdsOptions { max_connection_age: Some(Duration::from_secs(1)), ..XdsOptions::default() };
    let server = FakeServer::start(options).await.expect("a free port");
    set(&server, Cluster, &["a"], "1");
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let ports = |server: &FakeServer| server.state.connections().iter().filter_map(|c| c.peer).collect::<Vec<_>>();
    let mut stream = client.sotw(None).await.expect("a stream");
    stream.subscribe(Cluster, &[], "").await.expect("an open stream");
    stream.next().await.expect("a response");
    let before = ports(&server);
    let ended = loop {
        match stream.next().await {
            Err(ClientError::Silence) | Ok(_) => {}
            Err(other) => break other,
        }
    };
    assert!(matches!(&ended, ClientError::Status(status) if status.code() == Code::Unavailable), "{ended}");
    let mut stream = client.sotw(None).await.expect("another stream");
    stream.subscribe(Cluster, &[], "").await.expect("an open stream");
    assert_eq!(sotw_content(&stream.next().await.expect("a response")), content(&["a"], "1"));
    assert_ne!(ports(&server), before, "it is another connection");
    until_load(&server, |load| load.connections == 1).await;
}
