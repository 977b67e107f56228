//! Clients that forge: names of Secrets in odd spellings, tokens of elsewhere and of the past, certificate requests for others.

use std::{
    fs,
    time::{Duration, Instant},
};

use pilothouse::{
    identity::authority::new_root,
    proto::{
        envoy::{
            config::core::v3::Node, extensions::transport_sockets::tls::v3::Secret,
            service::discovery::v3::DeltaDiscoveryResponse,
        },
        istio::v1::auth::IstioCertificateRequest,
        json_to_struct,
    },
    testing::AdsClient,
    xds::ResourceType,
};
use prost::Message;
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use tonic::Code;

use crate::{
    confirm::{aside, ask},
    identity::{World, base64, certificate, channel, clusters, code, eventually, node, served, signed},
};

/// Puts a Secret `tls` into a namespace; gives its certificate.
pub fn credential(world: &World, namespace: &str) -> String {
    let day = Duration::from_secs(86_400);
    let material = new_root(namespace, std::time::SystemTime::now(), day).unwrap();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls", "namespace": namespace},
        "stringData": {"tls.crt": material.certificate, "tls.key": material.key, "ca.crt": material.certificate}});
    fs::write(world.config.path().join(format!("secret-{namespace}.yaml")), secret.to_string()).unwrap();
    material.certificate
}

/// The first Secrets that a client is sent, and its stream.
pub async fn sent(client: &AdsClient, names: &[&str], is_delta: bool) -> (Vec<Secret>, Box<dyn std::any::Any>) {
    let decoded = |bytes: &[u8]| Secret::decode(bytes).unwrap();
    if is_delta {
        let mut stream = client.delta(None).await.unwrap();
        stream.change(ResourceType::Secret, names, &[]).await.unwrap();
        let DeltaDiscoveryResponse { resources, .. } = stream.next().await.unwrap();
        let resources = resources.into_iter().map(|r| decoded(&r.resource.unwrap().value)).collect();
        return (resources, Box::new(stream));
    }
    let mut stream = client.sotw(None).await.unwrap();
    stream.subscribe(ResourceType::Secret, names, "").await.unwrap();
    let response = stream.next().await.unwrap();
    (response.resources.iter().map(|any| decoded(&any.value)).collect(), Box::new(stream))
}

#[tokio::test]
async fn no_spelling_of_a_name_leads_to_a_secret_of_another_namespace() {
    let world = World::new();
    let (own, foreign) = (credential(&world, "shop"), credential(&world, "bank"));
    let server = json!({"port": {"number": 443, "name": "https", "protocol": "HTTPS"}, "hosts": ["*"],
        "tls": {"mode": "MUTUAL", "credentialName": "kubernetes-gateway://bank/tls"}});
    let gateway = json!({"apiVersion": "networking.istio.io/v1", "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": "shop"}, "spec": {"selector": {"app": "edge"}, "servers": [server]}});
    fs::write(world.config.path().join("gateway.yaml"), gateway.to_string()).unwrap();
    let (mut server, secure) = world.serve(&[]);
    let token = world.token(&["-n", "shop", "-s", "cart"]);
    let sidecar = AdsClient::over(channel(secure, &world.root(), None).await.unwrap(), node("shop")).with_token(&token);
    served(&sidecar).await;
    let edge = sidecar.with_node(Node {
        id: "router~10.0.0.9~edge.shop~shop.svc.cluster.local".into(),
        metadata: json_to_struct(&json!({"LABELS": {"app": "edge"}})),
        ..Node::default()
    });
    let long = format!("kubernetes://{}bank/tls", "shop/../".repeat(500));
    let names = [
        "kubernetes://tls",
        "kubernetes://bank/tls",
        "kubernetes://bank/tls-cacert",
        "kubernetes://bank/tls-cacert-cacert",
        "kubernetes://bank/tls/",
        "kubernetes://bank//tls",
        "kubernetes://bank/tls/shop",
        "kubernetes:///bank/tls",
        "kubernetes:////bank/tls",
        "kubernetes://bank%2ftls",
        "kubernetes://bank%2Ftls",
        "kubernetes://%62ank/tls",
        "kubernetes://../bank/tls",
        "kubernetes://shop/../bank/tls",
        "kubernetes://./bank/tls",
        "kubernetes://shop\\..\\bank\\tls",
        "kubernetes://BANK/tls",
        "kubernetes:// bank/tls",
        "kubernetes://bank /tls",
        "kubernetes://bank\0/tls",
        "kubernetes://shop\0/bank/tls",
        "kubernetes://shop/bank/tls",
        "kubernetes://shop,bank/tls",
        "kubernetes://b\u{430}nk/tls",
        "KUBERNETES://bank/tls",
        "Kubernetes://bank/tls",
        " kubernetes://bank/tls",
        "kubernetes:bank/tls",
        "kubernetes:/bank/tls",
        "kubernetes://kubernetes://bank/tls",
        "kubernetes://kubernetes-gateway://bank/tls",
        "kubernetes-gateway://kubernetes://bank/tls",
        "kubernetes-gateway://bank/tls",
        "kubernetes-gateway://bank/tls-cacert",
        "kubernetes-gateway:///bank/tls",
        "kubernetes-gateway://shop/../bank/tls",
        "configmap://bank/tls",
        "configmap://bank/tls-cacert",
        "invalid://bank/tls",
        "builtin://bank/tls",
        "bank/tls",
        "tls.bank",
        "file-cert:bank/tls",
        "file-root:bank/tls",
        "spiffe://cluster.local/ns/bank/sa/teller",
        "default~bank/tls",
        "*",
        "",
        &long,
    ];
    for (what, client) in [("a sidecar", &sidecar), ("a gateway", &edge)] {
        for is_delta in [false, true] {
            let (secrets, _stream) = sent(client, &names, is_delta).await;
            let holds = |text: &str| secrets.iter().filter(|s| format!("{s:?}").contains(text)).count();
            // The part of a certificate that tells it from others, as the debug form of bytes keeps it.
            let line = |pem: &str| pem.lines().nth(3).unwrap().to_string();
            let told: Vec<&str> = secrets.iter().map(|secret| secret.name.as_str()).collect();
            assert!(holds(&line(&own)) > 0, "{what}: its own Secret is sent: {told:?}");
            assert_eq!(holds(&line(&foreign)), 0, "{what}, delta {is_delta}: {told:?}");
        }
    }
    assert_eq!(server.lines_with("panic"), 0);
    assert!(clusters(&sidecar).await.is_ok());
}

#[tokio::test]
async fn tokens_of_elsewhere_and_of_the_past_prove_nothing() {
    let (world, elsewhere) = (World::new(), World::new());
    let (mut server, secure) = world.serve(&[]);
    let plain = AdsClient::over(channel(secure, &world.root(), None).await.unwrap(), node("shop"));
    let arguments = ["-n", "shop", "-s", "cart"];
    let good = world.token(&arguments);
    served(&plain.with_token(&good)).await;
    let connection = channel(secure, &world.root(), None).await.unwrap();
    let key = KeyPair::generate().unwrap();
    let refused = async |why: &str, token: &str| {
        assert_eq!(code(clusters(&plain.with_token(token)).await), Code::Unauthenticated, "{why}");
        let issued = certificate(connection.clone(), Some(token), &key, 3600).await;
        assert_eq!(issued.unwrap_err().code(), Code::Unauthenticated, "{why}");
    };

    let foreign = elsewhere.token(&arguments);
    refused("of another control plane", &foreign).await;
    let (of_bank, brief) = (world.token(&["-n", "bank"]), world.token(&["-n", "shop", "--ttl", "1s"]));
    let part = |token: &str, at: usize| token.split('.').nth(at).unwrap().to_string();
    refused(
        "claims under another token's signature",
        &format!("{}.{}.{}", part(&good, 0), part(&good, 1), part(&of_bank, 2)),
    )
    .await;
    let unsigned = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0";
    assert!(String::from_utf8(base64(unsigned)).unwrap().contains("none"));
    refused("without a signature", &format!("{unsigned}.{}.", part(&good, 1))).await;
    refused("cut off", &good[..good.len() - 1]).await;
    let expired = plain.with_token(&brief);
    eventually("the token expires", || async { clusters(&expired).await.is_err() }).await;
    refused("expired", &brief).await;
    served(&plain.with_token(&good)).await;

    // Another key takes every token of the one before along.
    fs::remove_file(world.state.path().join("identity/join-key")).unwrap();
    refused("without a key", &good).await;
    let next = world.token(&arguments);
    served(&plain.with_token(&next)).await;
    refused("of the key before", &good).await;
    for token in [&good, &foreign, &of_bank, &brief, &next] {
        assert_eq!(server.lines_with(token.rsplit('.').next().unwrap()), 0, "a token is in the log");
    }
}

#[tokio::test]
async fn refused_callers_of_the_certificate_service_are_counted_and_told_now_and_then() {
    const TIMES: usize = 100;
    let world = World::new();
    let (mut server, [secure, _, http]) = world.serve_pages(&[], &[]);
    let connection = channel(secure, &world.root(), None).await.unwrap();
    let (key, start) = (KeyPair::generate().unwrap(), Instant::now());
    for n in 0..TIMES {
        let token = (n % 2 == 0).then_some("made-up");
        let refused = certificate(connection.clone(), token, &key, 0).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated);
    }
    server.until("line of a refused client", |line| line.contains("a client is refused").then_some(()));
    let (lines, most) = (server.lines_with("a client is refused"), 2 + start.elapsed().as_secs() as usize / 10);
    assert!(lines <= most, "{lines} lines");
    let metrics = aside(move || ask(http, "GET /metrics HTTP/1.0")).await;
    for name in ["pilothouse_xds_authentication_failures", "citadel_server_authentication_failure_count"] {
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        assert_eq!(value, Some(TIMES as f64), "{name}");
    }
}

#[tokio::test]
async fn a_caller_gets_no_certificate_in_the_name_of_another() {
    let world = World::new();
    let (mut server, secure) = world.serve(&[]);
    let connection = channel(secure, &world.root(), None).await.unwrap();
    let token = world.token(&["-n", "shop", "-s", "cart"]);
    let csr = CertificateParams::default().serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    let request = |metadata| IstioCertificateRequest { csr: csr.clone(), validity_duration: 0, metadata };
    let admin = "spiffe://cluster.local/ns/istio-system/sa/admin";
    let impersonates = json_to_struct(&json!({"ImpersonatedIdentity": admin}));
    let refused = signed(connection.clone(), Some(&token), request(impersonates)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let other = json_to_struct(&json!({"CertSigner": "other"}));
    signed(connection, Some(&token), request(other)).await.unwrap();
    server.until("audit line", |line| line.contains("a certificate is issued").then_some(()));
    assert_eq!((server.lines_with("a certificate is issued"), server.lines_with(admin)), (1, 0));
}

#[tokio::test]
async fn a_process_without_the_certificate_service_serves_xds_and_signs_nothing() {
    let world = World::new();
    let (mut server, secure, _) = world.serve_with(&[], &[("ENABLE_CA_SERVER", "false")]);
    let connection = channel(secure, &world.root(), None).await.unwrap();
    let token = world.token(&["-n", "shop", "-s", "cart"]);
    served(&AdsClient::over(connection.clone(), node("shop")).with_token(&token)).await;
    for token in [None, Some(&*token)] {
        let refused = certificate(connection.clone(), token, &KeyPair::generate().unwrap(), 0).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented, "{refused}");
    }
    assert_eq!(server.lines_with("a certificate is issued"), 0);
}
