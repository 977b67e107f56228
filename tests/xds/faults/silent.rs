//! A client that opens a stream and says nothing.

use std::time::Duration;

use pilothouse::{
    testing::{AdsClient, ClientError, FakeServer},
    xds::XdsOptions,
};
use tonic::Code;

#[tokio::test]
async fn a_silent_client_is_sent_away() {
    let options = XdsOptions { first_request: Duration::from_millis(50), ..XdsOptions::default() };
    let server = FakeServer::start(options).await.expect("a free port");
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    match stream.next().await {
        Err(ClientError::Status(status)) => assert_eq!(status.code(), Code::DeadlineExceeded),
        other => panic!("{other:?}"),
    }
}
