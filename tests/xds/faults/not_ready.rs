//! Clients that come before there is anything to serve.

use pilothouse::{
    testing::FakeServer,
    xds::{ResourceType::Cluster, XdsOptions},
};
use tonic::Code;

use super::{ask, end_of, is_well};
use crate::set;

#[tokio::test]
async fn streams_are_refused_until_something_is_published() {
    let server = FakeServer::start_unready(XdsOptions::default()).await.expect("a free port");
    let node = Some("sidecar~10.0.0.1~a.b~b.svc.cluster.local");
    assert_eq!(end_of(&server, node, ask(vec![])).await, Code::Unavailable);
    set(&server, Cluster, &["a"], "1");
    is_well(&server).await;
}
