//! A client that requests a type that is not served.

use crate::{content, server, sotw_content};
use pilothouse::{
    proto::envoy::service::discovery::v3::DiscoveryRequest, testing::AdsClient, xds::ResourceType::Cluster,
};

#[tokio::test]
async fn unknown_types_do_not_end_a_stream() {
    let server = server(Cluster, &["a"]).await;
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    let odd = DiscoveryRequest { type_url: "type.googleapis.com/odd".into(), ..DiscoveryRequest::default() };
    stream.send(odd).await.expect("an open stream");
    stream.subscribe(Cluster, &[], "").await.expect("an open stream");
    assert_eq!(sotw_content(&stream.next().await.expect("a response")), content(&["a"], "1"));
}
