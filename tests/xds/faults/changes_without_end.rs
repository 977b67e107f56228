//! Clients that subscribe and unsubscribe as fast as it goes.

use std::time::Duration;

use super::{answer, is_well, size};
use crate::{content, server, set};
use pilothouse::{
    testing::AdsClient,
    xds::ResourceType::{Cluster, Endpoint},
};

#[tokio::test]
async fn a_client_that_resubscribes_without_end_does_not_block_others() {
    let server = server(Cluster, &["a"]).await;
    let names: Vec<String> = (0..200).map(|number| format!("e{number}")).collect();
    set(&server, Endpoint, &names.iter().map(String::as_str).collect::<Vec<_>>(), "1");
    let mut changing = Vec::new();
    for first in 0..size(5, 50) {
        let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
        let mut stream = client.delta(None).await.expect("a stream");
        let names = names.clone();
        changing.push(tokio::spawn(async move {
            for at in first.. {
                let name = |offset: usize| names[(at + offset) % names.len()].as_str();
                let (add, remove) = ([name(0), name(7), name(19)], [name(3), name(11)]);
                if stream.change(Endpoint, &add, &remove).await.is_err() {
                    return;
                }
                let taken = tokio::time::timeout(Duration::from_millis(1), stream.next()).await;
                if let Ok(Ok(response)) = taken {
                    let _ = stream.accept(&response).await;
                }
            }
        }));
    }
    for version in 2..size(10, 200) {
        let version = version.to_string();
        set(&server, Cluster, &["a"], &version);
        assert_eq!(answer(&server, "10.0.0.9").await, content(&["a"], &version));
    }
    changing.iter().for_each(tokio::task::JoinHandle::abort);
    set(&server, Cluster, &["a"], "1");
    is_well(&server).await;
}
