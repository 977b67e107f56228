//! The service APIs (`networking.x-k8s.io`) of a real API server: kinds of their own beside Gateway API's of the same names.

use std::sync::Arc;

use pilothouse::{
    model::{ConfigSnapshot, Kind, Mesh, PushInputs},
    sources::kube::{FeedState, Group},
    translate::Translation,
};
use serde_json::{Value, json};

use crate::{admin::server, stage::Stage};

const OURS: [Kind; 6] = [
    Kind::BackendPolicy,
    Kind::ServiceApisGatewayClass,
    Kind::ServiceApisGateway,
    Kind::ServiceApisHTTPRoute,
    Kind::ServiceApisTCPRoute,
    Kind::ServiceApisTLSRoute,
];

/// The CRD of a kind, without a schema.
fn crd(kind: Kind) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let names = json!({"plural": kind.plural(), "singular": kind.as_str().to_lowercase(), "kind": kind.as_str()});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", kind.plural(), kind.group())},
        "spec": {"group": kind.group(), "names": names, "scope": if kind.namespaced() { "Namespaced" } else { "Cluster" },
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

fn object(kind: Kind, name: &str, spec: Value) -> Value {
    let mut object =
        json!({"apiVersion": kind.api_version(), "kind": kind.as_str(), "metadata": {"name": name}, "spec": spec});
    if kind.namespaced() {
        object["metadata"]["namespace"] = "shop".into();
    }
    object
}

fn objects() -> Vec<Value> {
    let listener =
        |port: u32, protocol: &str, route: &str| json!({"port": port, "protocol": protocol, "routes": {"kind": route}});
    let mut tls = listener(443, "TLS", "TLSRoute");
    tls["tls"] = json!({"mode": "Passthrough"});
    let listeners = [listener(80, "HTTP", "HTTPRoute"), listener(90, "TCP", "TCPRoute"), tls];
    let rules = json!({"rules": [{"forwardTo": [{"serviceName": "web", "port": 80}]}]});
    vec![
        object(Kind::ServiceApisGatewayClass, "edge", json!({"controller": "istio.io/gateway-controller"})),
        object(Kind::ServiceApisGateway, "web", json!({"gatewayClassName": "edge", "listeners": listeners})),
        object(Kind::ServiceApisHTTPRoute, "web", rules.clone()),
        object(Kind::ServiceApisTCPRoute, "web", rules.clone()),
        object(Kind::ServiceApisTLSRoute, "web", rules),
        object(
            Kind::BackendPolicy,
            "web",
            json!({"backendRefs": [{"name": "web"}], "tls": {"certificateAuthorityRef": {"name": "ca"}}}),
        ),
    ]
}

#[tokio::test]
async fn the_old_group_begins_with_its_crds_beside_the_new_one() {
    let (new, name) = (Kind::HTTPRoute, "httproutes.networking.x-k8s.io");
    let Some((server, admin)) = server(&["httproutes.gateway.networking.k8s.io"]).await else { return };
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::with_kubeconfig(dir, &server.kubeconfig, &[Group::GatewayApi, Group::Discovery], |_| {});
    let backend = json!({"rules": [{"backendRefs": [{"name": "web", "port": 80}]}]});
    admin.apply_soon(&object(new, "web", backend)).await;
    stage.until("the new group's route", |s| s.of_kind(new).len() == 1).await;
    stage.until("an absent kind", |s| s.feed(name).state == FeedState::Absent).await;
    for kind in OURS {
        admin.apply(&crd(kind)).await;
    }
    for object in objects() {
        admin.apply_soon(&object).await;
    }
    stage.until("one of each", |s| OURS.iter().chain([&new]).all(|kind| s.of_kind(*kind).len() == 1)).await;
    let configs = ConfigSnapshot::of(OURS.iter().chain([&new]).flat_map(|kind| stage.of_kind(*kind)));
    let translation =
        Translation::build(PushInputs { mesh: Arc::new(Mesh::default()), configs, ..PushInputs::default() });
    let counts = [&translation.gateways, &translation.virtual_services, &translation.destination_rules].map(Vec::len);
    assert_eq!((counts, translation.reports), ([1, 3, 1], Vec::new()));
    admin.delete(&object(Kind::ServiceApisHTTPRoute, "web", json!({}))).await;
    stage.until("one less", |s| s.of_kind(Kind::ServiceApisHTTPRoute).is_empty()).await;
    assert_eq!(stage.of_kind(new).len(), 1);
}
