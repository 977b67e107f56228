//! Requests of debug types, as `istioctl` sends them, where no identity is proved.

use pilothouse::{
    discovery::debug,
    proto::envoy::service::discovery::v3::DiscoveryRequest,
    testing::{AdsClient, ClientError},
    xds::ResourceType::Cluster,
};
use tonic::Code;

use super::server;

#[tokio::test]
async fn a_client_without_an_identity_is_refused_at_once() {
    let server = server(Cluster, &[]).await;
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    for (kind, name) in [(debug::PAGE, "syncz"), (debug::SYNCZ, ""), (debug::CONFIG_DUMP, "a.b")] {
        let mut stream = client.sotw(None).await.expect("a stream");
        let request = DiscoveryRequest {
            type_url: kind.into(),
            resource_names: vec![name.into()],
            response_nonce: "2026-11-22 08:00:00 +0000 UTC m=+0.07".into(),
            ..DiscoveryRequest::default()
        };
        stream.send(request).await.expect("an open stream");
        match stream.next().await {
            Err(ClientError::Status(status)) => assert_eq!(status.code(), Code::Unauthenticated, "{kind}"),
            other => panic!("{kind}: {other:?}"),
        }
    }
}
