//! Peers that speak no HTTP, or nothing at all.

use pilothouse::xds::ResourceType::Cluster;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::answer;
use crate::{content, server};

#[tokio::test]
async fn bytes_that_are_no_http_and_silent_peers_block_no_client() {
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
        // The server may hang up in the middle, as it should.
        match peer % 3 {
            0 => drop(stream.write_all(&noise).await),
            1 => drop(stream.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &noise].concat()).await),
            _ => silent.push(stream),
        }
    }
    assert_eq!(answer(&server, "10.0.0.9").await, content(&["a"], "1"));
    assert!(silent.len() > 30, "they were open all along");
}
