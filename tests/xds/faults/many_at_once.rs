//! A fleet that comes back at once.

use super::answer;
use crate::{content, server};
use futures::future::join_all;
use pilothouse::xds::ResourceType::Cluster;

/// The number of peers that come at once: as many as fit the usual limit of open files, both ends being in this process.
const MANY: usize = 400;

#[tokio::test]
async fn many_that_come_at_once_are_all_served() {
    let server = server(Cluster, &["a"]).await;
    let answers = join_all((0..MANY).map(|_| answer(&server, "10.0.0.1"))).await;
    assert!(answers.iter().all(|a| *a == content(&["a"], "1")));
}
