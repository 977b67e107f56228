//! Clients that prove no identity and are taken all the same, because a flag says so or because they are next door.

use pilothouse::{
    proto::{envoy::config::core::v3::Node, json_to_struct},
    testing::AdsClient,
    xds::ResourceType,
};
use rcgen::KeyPair;
use serde_json::json;
use tonic::Code;

use crate::{
    identity::{World, certificate, channel, clusters, code, node, served},
    proofs::client,
    stage::{end, entry, start, until},
};

#[tokio::test]
async fn clients_over_tls_prove_nothing_where_a_flag_says_so() {
    let world = World::new();
    let flags = [("XDS_AUTH", "false"), ("XDS_AUTH_PLAINTEXT", "true")];
    let (_server, secure, plain_text) = world.serve_with(&[], &flags);
    let stranger = client(&world, secure).await;
    assert!(clusters(&stranger).await.unwrap() > 0);
    // A proof counts for nothing: neither one that does not hold, nor one of another namespace.
    for token in ["no token".to_string(), world.token(&["-n", "other"])] {
        assert!(clusters(&stranger.with_token(&token)).await.unwrap() > 0, "{token}");
    }
    let plain = AdsClient::connect(plain_text, "10.0.0.9").await.unwrap().with_node(node("shop"));
    assert!(clusters(&plain).await.unwrap() > 0, "plain text is not stricter than TLS");
    // Without an identity there are neither the objects of the mesh nor certificates.
    let metadata = json_to_struct(&json!({"GENERATOR": "api"}));
    let reader = stranger.with_node(Node { metadata, ..node("istio-system") });
    assert_eq!(code(clusters(&reader).await), Code::Unauthenticated);
    let channel = channel(secure, &world.root(), None).await.unwrap();
    let (key, token) = (KeyPair::generate().unwrap(), world.token(&["-n", "shop"]));
    let refused = certificate(channel.clone(), None, &key, 0).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(certificate(channel, Some(&token), &key, 0).await.is_ok());
}

#[tokio::test]
async fn a_node_of_another_namespace_is_taken_where_a_flag_says_so() {
    let world = World::new();
    for (flag, taken) in [("true", false), ("false", true)] {
        let (_server, secure, _) = world.serve_with(&[], &[("PILOT_ENABLE_XDS_IDENTITY_CHECK", flag)]);
        let known = client(&world, secure).await.with_token(&world.token(&["-n", "shop"]));
        served(&known).await;
        let elsewhere = clusters(&known.with_node(node("other"))).await;
        assert_eq!(elsewhere.is_ok(), taken, "{flag}: {elsewhere:?}");
        // Without any proof nobody is taken.
        let stranger = client(&world, secure).await;
        assert_eq!(code(clusters(&stranger).await), Code::Unauthenticated, "{flag}");
    }
}

#[actix::test]
async fn a_node_that_is_believed_has_an_identity_of_the_mesh_s_trust_domain() {
    let dir = tempfile::tempdir().unwrap();
    let (config, mesh) = (dir.path().join("config"), dir.path().join("mesh.yaml"));
    std::fs::create_dir(&config).unwrap();
    std::fs::write(config.join("a.yaml"), entry("a", "a.example")).unwrap();
    std::fs::write(&mesh, "trustDomain: mesh.example\n").unwrap();
    let running = start(&[&config], Some(&mesh)).await;
    until(&running, |c| !c.inputs.registry.services.is_empty()).await;
    let metadata = json_to_struct(&json!({"SERVICE_ACCOUNT": "cart"}));
    let client = AdsClient::connect(running.addresses.grpc, "10.0.0.9").await.unwrap();
    let client = client.with_node(Node { metadata, ..node("shop") });
    let mut stream = client.sotw(None).await.unwrap();
    stream.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
    stream.next().await.unwrap();
    let identities: Vec<String> =
        running.state.connections().iter().filter_map(|c| c.identity.as_ref().map(ToString::to_string)).collect();
    assert_eq!(identities, ["spiffe://mesh.example/ns/shop/sa/cart"]);
    end(running).await;
}
