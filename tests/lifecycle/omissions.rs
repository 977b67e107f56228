//! Resources that cannot be sent as written are named on `/debug/push_status` and counted.

use std::fs;

use crate::{
    confirm::{aside, ask},
    stage::{end, settings, until},
};
use pilothouse::{testing::AdsClient, xds::ResourceType};

/// Two services that want one address and port, one in HTTP and one in TCP, and a Gateway-like secret that no proxy may have.
const OBJECTS: &str = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: one, namespace: shop, creationTimestamp: 2020-01-01T00:00:00Z}
spec: {hosts: [one.example], addresses: [10.9.9.9], ports: [{number: 81, name: tcp, protocol: TCP}], resolution: STATIC,
  endpoints: [{address: 10.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: two, namespace: shop, creationTimestamp: 2021-01-01T00:00:00Z}
spec: {hosts: [two.example], addresses: [10.9.9.9], ports: [{number: 81, name: tcp, protocol: TCP}], resolution: STATIC,
  endpoints: [{address: 10.0.0.2}]}
";

#[actix::test]
async fn conflicts_and_refused_secrets_are_told() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), OBJECTS).unwrap();
    let running =
        pilothouse::app::build(settings(&[dir.path()], None), pilothouse::runtime::Shutdown::default()).await.unwrap();
    until(&running, |c| c.inputs.registry.services.len() == 2).await;
    let client = AdsClient::connect(running.addresses.grpc, "10.0.0.9").await.unwrap();
    let mut stream = client.sotw(None).await.unwrap();
    stream.subscribe(ResourceType::Listener, &[], "").await.unwrap();
    stream.next().await.unwrap();
    stream.subscribe(ResourceType::Secret, &["kubernetes://nowhere"], "").await.unwrap();
    stream.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
    stream.next().await.unwrap();
    let http = running.addresses.http;
    let status = loop {
        let status = aside(move || ask(http, "GET /debug/push_status HTTP/1.0")).await;
        if status.contains("kubernetes://nowhere") {
            break status;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert!(status.contains("pilot_sds_certificate_errors_total"), "{status}");
    assert!(status.contains("pilot_conflict_outbound_listener_tcp_over_current_tcp"), "{status}");
    let metrics = aside(move || ask(http, "GET /metrics HTTP/1.0")).await;
    assert!(metrics.contains("pilot_conflict_outbound_listener_tcp_over_current_tcp 1"), "{metrics}");
    // Each metric is of one type, or Prometheus rejects the page.
    let types = metrics.lines().filter_map(|l| l.strip_prefix("# TYPE ")).filter_map(|l| l.split_once(' '));
    let of = |name: &str| types.clone().filter(|(n, _)| *n == name).map(|(_, t)| t).collect::<Vec<_>>();
    assert_eq!(of("pilot_sds_certificate_errors_total"), ["counter"]);
    assert_eq!(of("pilot_conflict_outbound_listener_tcp_over_current_tcp"), ["gauge"]);
    end(running).await;
}
