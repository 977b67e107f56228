//! A peer that is gone without closing its connection, as after a cable was pulled.

use std::time::Duration;

use pilothouse::{testing::FakeServer, xds::XdsOptions};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

#[tokio::test]
async fn a_peer_that_shows_no_sign_of_life_is_let_go() {
    let keepalive = (Duration::from_millis(100), Duration::from_millis(200));
    let server = FakeServer::start(XdsOptions { keepalive, ..XdsOptions::default() }).await.expect("a free port");
    let mut peer = TcpStream::connect(server.address).await.expect("a connection");
    // The preface and empty settings; after that no frame of the server is ever answered.
    peer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("an open connection");
    let mut heard = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(60), peer.read_to_end(&mut heard)).await;
    assert!(ended.is_ok(), "the server holds on to a dead connection");
    assert!(heard.windows(4).any(|w| w == [0, 0, 8, 6]), "it was asked for a sign of life first");
}
