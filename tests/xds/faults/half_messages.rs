//! Requests that are begun and not finished, over HTTP/2 by hand.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream::FuturesUnordered};
use h2::{RecvStream, SendStream, client::SendRequest};
use pilothouse::{
    testing::FakeServer,
    xds::{ResourceType::Cluster, XdsOptions},
};
use tokio::net::TcpStream;
use tonic::Code;

use super::{is_well, keeps_less_than, resident, size, until_load};
use crate::set;

const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// A connection whose pings are answered.
async fn connect(server: &FakeServer) -> SendRequest<Bytes> {
    let socket = TcpStream::connect(server.address).await.expect("a connection");
    let (client, connection) = h2::client::handshake(socket).await.expect("HTTP/2");
    tokio::spawn(connection);
    client.ready().await.expect("room for a stream")
}

/// A stream with the beginning of a request of 4 MB less one byte.
async fn begin(client: &mut SendRequest<Bytes>, bytes: usize) -> (SendStream<Bytes>, h2::client::ResponseFuture) {
    let request = http::Request::post(format!("http://localhost{METHOD}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .expect("a request");
    let (response, mut sending) = client.send_request(request, false).expect("a stream");
    let length = u32::try_from((4 << 20) - 1).expect("a length").to_be_bytes();
    let mut message = vec![0, length[0], length[1], length[2], length[3]];
    message.resize(bytes, 7);
    sending.send_data(message.into(), false).expect("an open stream");
    (sending, response)
}

/// The final status of the stream.
async fn end(response: h2::client::ResponseFuture) -> Code {
    let mut body: RecvStream = response.await.expect("headers").into_body();
    while let Some(Ok(_)) = body.data().await {}
    let trailers = body.trailers().await.expect("trailers").expect("a status");
    Code::from_bytes(trailers["grpc-status"].as_bytes())
}

#[tokio::test]
async fn a_request_that_is_begun_is_finished_or_the_stream_ends() {
    let options = XdsOptions { whole_request: Duration::from_millis(300), ..XdsOptions::default() };
    let server = FakeServer::start(options).await.expect("a free port");
    set(&server, Cluster, &["a"], "1");
    let mut client = connect(&server).await;
    let mut streams = Vec::new();
    for _ in 0..5 {
        streams.push(begin(&mut client, 100_000).await);
    }
    is_well(&server).await;
    for (sending, response) in streams {
        assert_eq!(end(response).await, Code::DeadlineExceeded);
        drop(sending);
    }
    until_load(&server, |load| load.unfinished_bytes == 0).await;
    is_well(&server).await;
}

#[tokio::test]
async fn requests_that_are_not_finished_are_bound() {
    // The attack takes its time on a loaded machine: it is to end by the bounds of bytes alone.
    let options = XdsOptions { whole_request: Duration::from_secs(600), ..XdsOptions::default() };
    let server = FakeServer::start(options).await.expect("a free port");
    set(&server, Cluster, &["a"], "1");
    is_well(&server).await;
    let before = resident();
    let (connections, streams) = (size(1, 40), size(24, 100));
    let mut held = Vec::new();
    for _ in 0..connections {
        let mut client = connect(&server).await;
        for _ in 0..streams {
            client = client.ready().await.expect("room for a stream");
            held.push(begin(&mut client, 1 << 20).await);
        }
    }
    // One connection has room for 16 of them; any further one is refused.
    let ends = held.into_iter().map(|(sending, response)| async move { (end(response).await, sending) });
    let mut ends: FuturesUnordered<_> = ends.collect();
    for _ in 0..connections * (streams - 16) {
        let ended = tokio::time::timeout(Duration::from_secs(120), ends.next()).await;
        assert_eq!(ended.expect("it is refused").map(|(code, _)| code), Some(Code::ResourceExhausted));
    }
    let held = server.state.load().unfinished_bytes;
    assert!(held <= 256 << 20, "{held} bytes are held");
    is_well(&server).await;
    drop(ends);
    until_load(&server, |load| load.unfinished_bytes == 0).await;
    is_well(&server).await;
    keeps_less_than(100, before);
}
