//! Connections that do nothing, begin and do not finish, or come all at once.

use std::net::SocketAddr;

use bytes::Bytes;
use futures::{StreamExt, stream::FuturesUnordered};
use h2::client::{ResponseFuture, SendRequest};
use pilothouse::{testing::AdsClient, xds::ResourceType::Cluster};
use tokio::{net::TcpStream, task::JoinSet};
use tonic::Code;

use super::{Attacked, gateway, size, take_all};

const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// A connection whose pings are answered.
async fn connect(address: SocketAddr) -> SendRequest<Bytes> {
    let (client, connection) = h2::client::handshake(TcpStream::connect(address).await.unwrap()).await.unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap()
}

/// A call that begins with these bytes and is kept open; `None` when the connection has ended.
fn begin(client: &mut SendRequest<Bytes>, bytes: Vec<u8>) -> Option<(h2::SendStream<Bytes>, ResponseFuture)> {
    let call = http::Request::post(format!("http://localhost{METHOD}"));
    let call = call.header("content-type", "application/grpc").header("te", "trailers").body(()).unwrap();
    let (response, mut sending) = client.send_request(call, false).ok()?;
    sending.send_data(bytes.into(), false).ok()?;
    Some((sending, response))
}

/// The status with which a call ends; `None` when its connection has ended.
async fn end(response: ResponseFuture) -> Option<Code> {
    let (head, mut body) = response.await.ok()?.into_parts();
    if let Some(status) = head.headers.get("grpc-status") {
        return Some(Code::from_bytes(status.as_bytes()));
    }
    while let Some(Ok(_)) = body.data().await {}
    let trailers = body.trailers().await.ok()?.expect("a status");
    Some(Code::from_bytes(trailers["grpc-status"].as_bytes()))
}

/// The first bytes of a message that says to be this long.
fn message(flag: u8, length: u32, sent: usize) -> Vec<u8> {
    let mut bytes = vec![flag];
    bytes.extend(length.to_be_bytes());
    bytes.resize(sent, 7);
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_compressed_and_endless_messages_are_bounded() {
    let mut attacked = Attacked::plain().await;
    let address = attacked.address;
    let rows = [
        ("a message that says to have 100 MB", message(0, 100 << 20, 5), Code::ResourceExhausted),
        ("a compressed message", message(1, 1000, 1005), Code::Unimplemented),
        ("a message of 5 MB", message(0, 5 << 20, 1 << 20), Code::ResourceExhausted),
        ("noise", vec![0, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff], Code::InvalidArgument),
    ];
    let refused = async move {
        let (mut client, mut connections) = (connect(address).await, 1);
        for (name, bytes, code) in std::iter::repeat_n(&rows, size(5, 200)).flatten() {
            let ended = loop {
                if let Ok(mut ready) = client.ready().await
                    && let Some((sending, response)) = begin(&mut ready, bytes.clone())
                    && let Some(ended) = end(response).await
                {
                    drop(sending);
                    client = ready;
                    break ended;
                }
                // A connection whose calls are reset again and again is ended.
                client = connect(address).await;
                connections += 1;
            };
            assert_eq!(ended, *code, "{name}");
        }
        assert!(connections <= 4, "{connections} connections");
    };
    attacked.under("messages that are refused", refused).await;

    let (connections, streams, each) = (size(2, 40), size(24, 100), 1 << 20);
    let half = async move {
        let (mut clients, mut held) = (Vec::new(), Vec::new());
        for _ in 0..connections {
            let mut client = connect(address).await;
            for _ in 0..streams {
                client = client.ready().await.unwrap();
                held.push(begin(&mut client, message(0, (4 << 20) - 1, each)).expect("an open connection"));
            }
            clients.push(client);
        }
        // One connection has room for 16 of them; any further one is refused.
        let mut ends: FuturesUnordered<_> =
            held.into_iter().map(|(sending, response)| async move { (end(response).await, sending) }).collect();
        for _ in 0..connections * (streams - 16) {
            assert_eq!(ends.next().await.and_then(|(code, _)| code), Some(Code::ResourceExhausted));
        }
        (clients, ends)
    };
    attacked.under("half messages", half).await;
}

/// As many as are let in at once stay open for ten seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_thousand_idle_connections() {
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let mut attacked = Attacked::plain().await;
    let address = attacked.address;
    let idle = async move {
        let mut held = Vec::new();
        for _ in 0..3000 {
            held.push(TcpStream::connect(address).await.expect("a descriptor"));
        }
        held
    };
    attacked.under("3,000 idle connections", idle).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_connections_of_one_node() {
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let mut attacked = Attacked::plain().await;
    let address = attacked.address;
    let coming = async move {
        let mut held = Vec::new();
        for _ in 0..20 {
            let group = (0..50).map(|_| async move {
                let client = AdsClient::connect(address, "10.0.0.77").await.expect("a connection");
                let mut stream = client.sotw(None).await.expect("a stream");
                stream.subscribe(Cluster, &[], "").await.expect("an open stream");
                assert!(!stream.next().await.expect("an answer").resources.is_empty());
                stream
            });
            held.extend(futures::future::join_all(group).await);
        }
        held
    };
    attacked.under("1,000 connections of one node", coming).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_streams_on_one_connection() {
    let mut attacked = Attacked::plain().await;
    let client = gateway(attacked.address).await;
    let opening = async move {
        let mut held = JoinSet::new();
        for _ in 0..size(10, 100) {
            let group = (0..100).map(|_| async {
                let mut stream = client.sotw(None).await.expect("a stream");
                stream.subscribe(Cluster, &[], "").await.expect("an open stream");
                stream.next().await.expect("an answer");
                stream
            });
            for stream in futures::future::join_all(group).await {
                held.spawn(take_all(stream));
            }
        }
        held
    };
    attacked.under("streams on one connection", opening).await;
}
