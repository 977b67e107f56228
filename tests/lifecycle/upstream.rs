//! One pilothouse feeds another: proxies of both get equal resources. And the answers to other clients of config objects.

use std::{collections::BTreeMap, fs, net::SocketAddr, path::Path};

use pilothouse::{
    app::{self, Running},
    proto::{
        envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryRequest},
        istio::{mcp::v1alpha1::Resource, mesh::v1alpha1::MeshConfig},
        json_to_struct,
    },
    runtime::Shutdown,
    settings::Settings,
    testing::{AdsClient, ClientError},
    xds::ResourceType,
};
use prost::Message;
use serde_json::json;

use crate::stage::{end, entry, hosts, settings, start, until};

const OBJECTS: &str = r#"
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v, namespace: shop}
spec: {hosts: [a.example], http: [{route: [{destination: {host: a.example}}], timeout: 7s}]}
---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: g, namespace: shop}
spec: {template: {serviceAccount: x}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.9.0.1, ports: [{name: http, port: 80}], selector: {app: web}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.8.0.1]}]
---
apiVersion: v1
kind: Secret
metadata: {name: hush, namespace: shop}
data: {key: aHVzaA==}
"#;

fn downstream(upstream: SocketAddr, delta: bool) -> Settings {
    let mut settings = settings(&[], None);
    settings.sources.upstream.addresses = vec![upstream.to_string()];
    settings.sources.upstream.delta = delta;
    settings.sources.upstream.first_pause = std::time::Duration::from_millis(20);
    settings
}

/// The resources that a sidecar is sent, by type and name.
async fn resources(running: &Running) -> BTreeMap<(ResourceType, String), String> {
    let client = AdsClient::connect(running.addresses.grpc, "10.8.0.1").await.unwrap();
    let mut stream = client.delta(None).await.unwrap();
    let endpoints = ["outbound|80||web.shop.svc.cluster.local", "outbound|80||a.example"];
    let mut all = BTreeMap::new();
    for (kind, names) in [
        (ResourceType::Cluster, &["*"][..]),
        (ResourceType::Endpoint, &endpoints),
        (ResourceType::Listener, &["*"]),
        (ResourceType::Route, &["80"]),
    ] {
        stream.change(kind, names, &[]).await.unwrap();
        let response = stream.next().await.unwrap();
        stream.accept(&response).await.unwrap();
        all.extend(response.resources.into_iter().map(|r| ((kind, r.name), r.version)));
    }
    all
}

async fn feeds(dir: &Path, delta: bool) {
    fs::write(dir.join("a.yaml"), entry("a", "a.example") + OBJECTS).unwrap();
    let first = start(&[dir], None).await;
    until(&first, |c| hosts(c).len() == 2).await;
    let second = app::build(downstream(first.addresses.grpc, delta), Shutdown::default()).await.unwrap();
    until(&second, |c| hosts(c) == ["a.example", "web.shop.svc.cluster.local"]).await;
    let (of_first, of_second) = (resources(&first).await, resources(&second).await);
    assert!(of_first.len() > 8, "{of_first:?}");
    assert_eq!(of_first, of_second, "versions are hashes of the content");
    let kinds: Vec<&str> = second.store.snapshot().by_kind.keys().map(|k| k.as_str()).collect();
    assert!(kinds.contains(&"WorkloadGroup") && !kinds.contains(&"Secret"), "{kinds:?}");

    fs::write(dir.join("b.yaml"), entry("b", "b.example")).unwrap();
    until(&second, |c| hosts(c).len() == 3).await;
    fs::remove_file(dir.join("b.yaml")).unwrap();
    until(&second, |c| hosts(c).len() == 2).await;
    assert_eq!(resources(&first).await, resources(&second).await);
    end(first).await;
    until(&second, |_| !second.sources[0].board.read().last_error.is_empty()).await;
    assert_eq!(of_first, resources(&second).await, "an upstream that is gone takes nothing along");
    end(second).await;
}

#[actix::test]
async fn one_pilothouse_feeds_another_by_state_of_the_world() {
    feeds(tempfile::tempdir().unwrap().path(), false).await;
}

#[actix::test]
async fn one_pilothouse_feeds_another_by_differences() {
    feeds(tempfile::tempdir().unwrap().path(), true).await;
}

fn control_plane(namespace: &str) -> Node {
    Node {
        id: format!("sidecar~10.0.0.1~istiod.{namespace}~{namespace}.svc.cluster.local"),
        metadata: json_to_struct(&json!({"GENERATOR": "api", "NAMESPACE": namespace})),
        ..Node::default()
    }
}

#[actix::test]
async fn istio_as_a_client_gets_the_resources_that_istio_would_send() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example") + OBJECTS).unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| hosts(c).len() == 2).await;
    let client = AdsClient::connect(running.addresses.grpc, "10.0.0.1").await.unwrap();
    let mut stream = client.with_node(control_plane("istio-system")).sotw(None).await.unwrap();
    let mut ask = async |type_url: &str| {
        // Istio's client begins with a nonce of its own making.
        let response_nonce = "2026-11-21 15:00:00".to_string();
        let request = DiscoveryRequest { type_url: type_url.into(), response_nonce, ..DiscoveryRequest::default() };
        stream.send(request).await.unwrap();
        let response = stream.next().await.unwrap();
        assert_eq!(response.type_url, type_url);
        response.resources
    };
    let names = |resources: &[pilothouse::proto::wkt::Any]| -> Vec<String> {
        resources.iter().map(|any| Resource::decode(&*any.value).unwrap().metadata.unwrap().name).collect()
    };
    for version in ["v1", "v1alpha3", "v1beta1"] {
        let entries = ask(&format!("networking.istio.io/{version}/ServiceEntry")).await;
        assert_eq!(names(&entries), ["shop/a", "shop/synthetic-web"]);
        assert_eq!(entries[0].type_url, "type.googleapis.com/istio.mcp.v1alpha1.Resource");
    }
    let mesh = ask("core/v1alpha1/MeshConfig").await;
    assert_eq!(MeshConfig::decode(&*mesh[0].value).unwrap().root_namespace, "istio-system");
    for nothing in ["core/v1/Secret", "some.example/v1/Thing", "nonsense", "networking.istio.io/v1/Gateway"] {
        assert!(ask(nothing).await.is_empty(), "{nothing}");
    }
    end(running).await;
}

#[actix::test]
async fn only_the_root_namespace_is_told_config_objects() {
    let dir = tempfile::tempdir().unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |_| true).await;
    let client = AdsClient::connect(running.addresses.grpc, "10.0.0.1").await.unwrap();
    let mut stream = client.with_node(control_plane("shop")).sotw(None).await.unwrap();
    let request = DiscoveryRequest { type_url: "networking.istio.io/v1/Gateway".into(), ..DiscoveryRequest::default() };
    stream.send(request).await.unwrap();
    match stream.next().await {
        Err(ClientError::Status(status)) => assert_eq!(status.code(), tonic::Code::PermissionDenied),
        other => panic!("{other:?}"),
    }
    end(running).await;
}
