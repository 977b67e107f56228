//! First requests that say nothing usable, or too much.

use pilothouse::xds::ResourceType::Cluster;
use tonic::Code;

use super::{ask, end_of, is_well};
use crate::server;

#[tokio::test]
async fn bad_first_requests_are_refused_with_a_reason() {
    let server = server(Cluster, &["a"]).await;
    let node = "sidecar~10.0.0.1~a.b~b.svc.cluster.local";
    assert_eq!(end_of(&server, None, ask(vec![])).await, Code::InvalidArgument);
    assert_eq!(end_of(&server, Some("nonsense"), ask(vec![])).await, Code::InvalidArgument);
    assert_eq!(end_of(&server, Some("sidecar~no-ip~a.b~d"), ask(vec![])).await, Code::InvalidArgument);
    let huge = format!("{node}{}", "x".repeat(1 << 20));
    assert_eq!(end_of(&server, Some(&huge), ask(vec![])).await, Code::ResourceExhausted);
    let many = (0..150_000).map(|n| n.to_string()).collect();
    assert_eq!(end_of(&server, Some(node), ask(many)).await, Code::ResourceExhausted);
    let long = vec!["x".repeat(10_000)];
    assert_eq!(end_of(&server, Some(node), ask(long)).await, Code::ResourceExhausted);
    let too_big = vec!["x".repeat(5 << 20)];
    assert_eq!(end_of(&server, Some(node), ask(too_big)).await, Code::ResourceExhausted);
    assert_eq!(server.state.connections().len(), 0, "refused streams leave nothing behind");
    is_well(&server).await;
}
