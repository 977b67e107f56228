//! A client that asks without end.

use super::answer;
use crate::{content, server, set};
use pilothouse::{testing::AdsClient, xds::ResourceType::Cluster};

#[tokio::test]
async fn a_client_that_asks_without_end_does_not_block_others() {
    let server = server(Cluster, &["a"]).await;
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    let asking = tokio::spawn(async move {
        let mut asked = 0_u32;
        while asked < 20_000 && stream.subscribe(Cluster, &["a"], "").await.is_ok() {
            asked += 1;
            tokio::task::yield_now().await;
        }
    });
    for version in ["1", "2", "3"] {
        set(&server, Cluster, &["a"], version);
        assert_eq!(answer(&server, "10.0.0.9").await, content(&["a"], version));
    }
    asking.abort();
}
