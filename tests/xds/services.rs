//! Health and reflection, as gRPC tools ask for them.

use pilothouse::xds::ResourceType::Cluster;
use tonic::transport::Endpoint;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use super::server;

#[tokio::test]
async fn health_is_told() {
    let server = server(Cluster, &[]).await;
    let address = Endpoint::from_shared(format!("http://{}", server.address)).expect("an address");
    let mut client = HealthClient::new(address.connect().await.expect("a connection"));
    let answer = client.check(HealthCheckRequest { service: String::new() }).await.expect("an answer");
    assert_eq!(answer.into_inner().status(), ServingStatus::Serving);
}

#[tokio::test]
async fn services_are_listed() {
    let server = server(Cluster, &[]).await;
    let address = Endpoint::from_shared(format!("http://{}", server.address)).expect("an address");
    let mut client = ServerReflectionClient::new(address.connect().await.expect("a connection"));
    let list = MessageRequest::ListServices(String::new());
    let request = ServerReflectionRequest { message_request: Some(list), ..ServerReflectionRequest::default() };
    let mut answers = client.server_reflection_info(tokio_stream::once(request)).await.expect("a stream").into_inner();
    let answer = answers.message().await.expect("an answer").and_then(|a| a.message_response);
    let Some(MessageResponse::ListServicesResponse(list)) = answer else { panic!("{answer:?}") };
    let names: Vec<_> = list.service.iter().map(|s| s.name.as_str()).collect();
    let single = ["cluster", "endpoint", "listener", "route", "secret"].map(|kind| {
        let capital = format!("{}{}", kind[..1].to_uppercase(), &kind[1..]);
        format!("envoy.service.{kind}.v3.{capital}DiscoveryService")
    });
    let aggregated = "envoy.service.discovery.v3.AggregatedDiscoveryService".to_string();
    for service in single.into_iter().chain([aggregated]) {
        assert!(names.contains(&service.as_str()), "{service} is not in {names:?}");
    }
}
