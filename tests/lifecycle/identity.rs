//! The secure listener of the real process: join tokens, certificates, the identities that each may claim, and files that change.

use std::{net::SocketAddr, path::Path, process::Command, time::Duration};

use pilothouse::{
    proto::{
        envoy::{
            config::core::v3::{DataSource, Node, data_source::Specifier},
            extensions::transport_sockets::tls::v3::{Secret, secret::Type},
            service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
        },
        istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse},
        mesh::ProxyConfig,
    },
    testing::{AdsClient, ClientError, SotwStream},
    xds::ResourceType,
};
use prost::Message;
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;
use tempfile::TempDir;
use tonic::{
    Code, Status,
    client::Grpc,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use tonic_prost::ProstCodec;

use crate::{binary::Binary, stage::DEADLINE};

/// Waits until it holds.
pub async fn eventually<F: Future<Output = bool>>(expected: &str, holds: impl Fn() -> F) {
    let deadline = std::time::Instant::now() + DEADLINE;
    while !holds().await {
        assert!(std::time::Instant::now() < deadline, "never: {expected}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A mesh with one service, and a state folder.
pub struct World {
    pub config: TempDir,
    pub state: TempDir,
}

impl World {
    pub fn new() -> Self {
        let world = Self { config: tempfile::tempdir().unwrap(), state: tempfile::tempdir().unwrap() };
        let entry = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a, namespace: shop}\nspec:\n  hosts: [a.example.com]\n  resolution: STATIC\n  ports: [{name: http, number: 80, protocol: HTTP}]\n  endpoints: [{address: 10.0.0.1}]\n";
        std::fs::write(world.config.path().join("a.yaml"), entry).unwrap();
        world
    }

    pub fn serve(&self, more: &[&str]) -> (Binary, SocketAddr) {
        let (binary, secure, _) = self.serve_with(more, &[]);
        (binary, secure)
    }

    /// The process, and its secure and plain-text addresses of xDS.
    pub fn serve_with(&self, more: &[&str], env: &[(&str, &str)]) -> (Binary, SocketAddr, SocketAddr) {
        let (binary, [secure, plain, _]) = self.serve_pages(more, env);
        (binary, secure, plain)
    }

    /// As [`World::serve_with`], with the address of the pages as the third.
    pub fn serve_pages(&self, more: &[&str], env: &[(&str, &str)]) -> (Binary, [SocketAddr; 3]) {
        let state = self.state.path().to_str().unwrap();
        let own = ["--secure-grpc-addr", "127.0.0.1:0", "--state-dir", state];
        let mut binary = Binary::serve(self.config.path(), &[&own, more].concat(), env);
        let addresses = binary.until("addresses", |line| {
            let line: Value = serde_json::from_str(line).ok()?;
            let of = |name: &str| line[name].as_str()?.parse().ok();
            Some([of("secure_grpc")?, of("grpc")?, of("http")?])
        });
        (binary, addresses)
    }

    pub fn root(&self) -> String {
        std::fs::read_to_string(self.state.path().join("identity/root-cert.pem")).unwrap()
    }

    pub fn token(&self, arguments: &[&str]) -> String {
        let (ended, text) = self.pilothouse(&[&["token", "create"], arguments].concat());
        assert!(ended, "{text}");
        text.lines().next().unwrap().to_string()
    }

    /// Revokes a join token.
    pub fn revoke(&self, token: &str) {
        let claims = String::from_utf8(base64(token.split('.').nth(1).unwrap())).unwrap();
        let id = serde_json::from_str::<Value>(&claims).unwrap()["jti"].as_str().unwrap().to_string();
        assert!(self.pilothouse(&["token", "revoke", &id]).0);
    }

    pub fn pilothouse(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        let output = command.args(arguments).arg("--state-dir").arg(self.state.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).to_string() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }
}

pub async fn channel(
    address: SocketAddr,
    root: &str,
    identity: Option<Identity>,
) -> Result<Channel, tonic::transport::Error> {
    let mut tls =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(root)).domain_name("istiod.istio-system.svc");
    if let Some(identity) = identity {
        tls = tls.identity(identity);
    }
    Endpoint::from_shared(format!("https://{address}")).unwrap().tls_config(tls)?.connect().await
}

pub fn node(namespace: &str) -> Node {
    Node { id: format!("sidecar~10.0.0.9~client.{namespace}~{namespace}.svc.cluster.local"), ..Node::default() }
}

/// The clusters that a client is sent once the server is ready.
pub async fn clusters(client: &AdsClient) -> Result<usize, ClientError> {
    let deadline = std::time::Instant::now() + DEADLINE;
    loop {
        match asked(client).await {
            Err(ClientError::Status(status)) if status.message().starts_with("not ready") => {
                assert!(std::time::Instant::now() < deadline, "{status}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            result => return result,
        }
    }
}

async fn asked(client: &AdsClient) -> Result<usize, ClientError> {
    let mut stream = client.sotw(None).await?;
    let request = DiscoveryRequest { type_url: ResourceType::Cluster.url().into(), ..DiscoveryRequest::default() };
    // A stream that is refused may be closed before; its status tells why.
    let _ = stream.send(request).await;
    Ok(stream.next().await?.resources.len())
}

pub fn code(result: Result<usize, ClientError>) -> Code {
    match result {
        Err(ClientError::Status(status)) => status.code(),
        other => panic!("{other:?}"),
    }
}

/// Waits until the first configuration is published.
pub async fn served(client: &AdsClient) {
    eventually("clusters", || async { clusters(client).await.is_ok_and(|count| count > 0) }).await;
}

pub async fn certificate(
    channel: Channel,
    token: Option<&str>,
    key: &KeyPair,
    seconds: i64,
) -> Result<Vec<String>, Status> {
    let csr = CertificateParams::default().serialize_request(key).unwrap().pem().unwrap();
    let request = IstioCertificateRequest { csr, validity_duration: seconds, metadata: None };
    signed(channel, token, request).await
}

/// The answer of the certificate service to any request.
pub async fn signed(
    channel: Channel,
    token: Option<&str>,
    request: IstioCertificateRequest,
) -> Result<Vec<String>, Status> {
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.map_err(|e| Status::unavailable(e.to_string()))?;
    let mut request = tonic::Request::new(request);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let path = "/istio.v1.auth.IstioCertificateService/CreateCertificate".parse().unwrap();
    let codec = ProstCodec::<IstioCertificateRequest, IstioCertificateResponse>::default();
    Ok(grpc.unary(request, path, codec).await?.into_inner().cert_chain)
}

#[tokio::test]
async fn a_machine_joins_by_token_and_stays_by_certificate() {
    let world = World::new();
    let (mut server, secure) = world.serve(&[]);
    let root = world.root();
    let token = world.token(&["-n", "shop", "-s", "cart"]);

    // Nothing presented, and a token that is made up.
    let plain = AdsClient::over(channel(secure, &root, None).await.unwrap(), node("shop"));
    assert_eq!(code(clusters(&plain).await), Code::Unauthenticated);
    assert_eq!(code(clusters(&plain.with_token("made-up")).await), Code::Unauthenticated);

    let joined = plain.with_token(&token);
    served(&joined).await;
    assert_eq!(code(clusters(&joined.with_node(node("other"))).await), Code::PermissionDenied);

    let key = KeyPair::generate().unwrap();
    let connection = channel(secure, &root, None).await.unwrap();
    assert_eq!(certificate(connection.clone(), None, &key, 0).await.unwrap_err().code(), Code::Unauthenticated);
    let too_long = certificate(connection.clone(), Some(&token), &key, i64::MAX).await.unwrap_err();
    assert_eq!(too_long.code(), Code::InvalidArgument, "{too_long}");
    let chain = certificate(connection, Some(&token), &key, 3600).await.unwrap();
    assert_eq!(chain.last().unwrap().trim(), root.trim(), "the root comes last");
    server.until("audit line", |line| line.contains("spiffe://cluster.local/ns/shop/sa/cart").then_some(()));

    // The certificate serves in place of the token, which is revoked.
    let id = world.pilothouse(&["token", "create", "-n", "shop"]).1;
    assert!(id.contains("shop/default"), "{id}");
    world.revoke(&token);
    assert_eq!(code(clusters(&joined).await), Code::Unauthenticated);
    let identity = Identity::from_pem(&chain[0], key.serialize_pem());
    let connection = channel(secure, &root, Some(identity.clone())).await.unwrap();
    let certified = AdsClient::over(connection.clone(), node("shop"));
    assert!(clusters(&certified).await.unwrap() > 0);
    assert_eq!(code(clusters(&certified.with_node(node("other"))).await), Code::PermissionDenied);
    let renewed = certificate(connection, None, &key, 60).await.unwrap();
    assert_ne!(renewed[0], chain[0], "a certificate is renewed by the one before");
}

#[tokio::test]
async fn agents_follow_the_roots_of_the_mesh_over_pcds() {
    let (world, settings) = (World::new(), tempfile::tempdir().unwrap());
    let (file, next) = (settings.path().join("mesh.yaml"), settings.path().join("new"));
    let configure = |config: Value| {
        std::fs::write(&next, config.to_string()).unwrap();
        std::fs::rename(&next, &file).unwrap();
    };
    configure(serde_json::json!({}));
    let arguments = ["--mesh-config", file.to_str().unwrap()];
    let (_server, secure, _) = world.serve_with(&arguments, &[("ISTIO_MULTIROOT_MESH", "true")]);
    let root = world.root();
    let token = world.token(&["-n", "shop", "-s", "cart"]);
    let agent = AdsClient::over(channel(secure, &root, None).await.unwrap(), node("shop")).with_token(&token);
    served(&agent).await;
    let mut stream = agent.sotw(None).await.unwrap();
    stream.subscribe(ResourceType::ProxyConfig, &[], "").await.unwrap();
    let mut expected = vec![root.clone()];
    let now = std::time::SystemTime::now();
    let other = pilothouse::identity::authority::new_root("other", now, Duration::from_secs(86_400)).unwrap().roots;
    for anchor in [None, Some(other)] {
        if let Some(anchor) = anchor {
            configure(serde_json::json!({"caCertificates": [{"pem": anchor}]}));
            expected.push(anchor);
        }
        expected.sort();
        loop {
            let response = stream.next().await.expect("the roots are told");
            stream.subscribe(ResourceType::ProxyConfig, &[], &response.nonce).await.unwrap();
            let told = response.resources.iter().map(|any| ProxyConfig::decode(&*any.value).unwrap());
            let told: Vec<_> =
                told.flat_map(|config| config.ca_certificates_pem).map(|pem| pem.trim().to_string()).collect();
            if told == expected.iter().map(|pem| pem.trim().to_string()).collect::<Vec<String>>() {
                break;
            }
        }
    }
}

/// Bytes of URL-safe base64 without padding.
pub fn base64(text: &str) -> Vec<u8> {
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (mut bits, mut count, mut bytes) = (0u32, 0, Vec::new());
    for c in text.chars() {
        bits = bits << 6 | alphabet.find(c).unwrap() as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

/// Another authority's certificate of the same name.
fn foreign() -> Identity {
    let now = std::time::SystemTime::now();
    let day = Duration::from_secs(86_400);
    let material = pilothouse::identity::authority::new_root("cluster.local", now, day).unwrap();
    let authority = pilothouse::identity::Authority::new(&material, now).unwrap();
    let id = pilothouse::model::Identity::parse("spiffe://cluster.local/ns/shop/sa/cart").unwrap();
    let issued = authority.issue(&id, day, now).unwrap();
    Identity::from_pem(issued.certificate.chain, issued.key)
}

#[tokio::test]
async fn certificates_of_another_root_are_turned_away() {
    let world = World::new();
    let (mut server, secure) = world.serve(&[]);
    let connected = channel(secure, &world.root(), Some(foreign())).await;
    // With TLS 1.3 a client learns of it with its first bytes.
    if let Ok(channel) = connected {
        assert!(clusters(&AdsClient::over(channel, node("shop"))).await.is_err());
    }
    server.until("line of the failed handshake", |line| line.contains("a TLS handshake failed").then_some(()));
}

#[tokio::test]
async fn a_root_of_the_state_folder_outlives_the_process_and_plugged_in_files_are_followed() {
    let world = World::new();
    let (server, _) = world.serve(&[]);
    let root = world.root();
    let token = world.token(&["-n", "shop"]);
    server.kill();
    let (server, secure) = world.serve(&[]);
    assert_eq!(world.root(), root);
    served(&AdsClient::over(channel(secure, &root, None).await.unwrap(), node("shop")).with_token(&token)).await;
    drop(server);

    let cacerts = tempfile::tempdir().unwrap();
    let plug_in = |folder: &Path| {
        let day = Duration::from_secs(86_400);
        let material = pilothouse::identity::authority::new_root("mine", std::time::SystemTime::now(), day).unwrap();
        for (name, text) in
            [("ca-key.pem", &material.key), ("ca-cert.pem", &material.certificate), ("root-cert.pem", &material.roots)]
        {
            std::fs::write(folder.join(name), text).unwrap();
        }
        material.roots
    };
    let first = plug_in(cacerts.path());
    let (mut server, secure) = world.serve(&["--cacerts-dir", cacerts.path().to_str().unwrap()]);
    let client = AdsClient::over(channel(secure, &first, None).await.unwrap(), node("shop")).with_token(&token);
    served(&client).await;
    let kept = client.sotw(None).await.unwrap();
    let second = plug_in(cacerts.path());
    eventually("the new root", || async { channel(secure, &second, None).await.is_ok() }).await;
    assert!(channel(secure, &first, None).await.is_err(), "new connections get the new certificate only");
    drop(kept);
    std::fs::write(cacerts.path().join("ca-key.pem"), "damaged").unwrap();
    server.until("line of the damaged file", |line| line.contains("stays the last good one").then_some(()));
    assert!(channel(secure, &second, None).await.is_ok());
}

#[tokio::test]
async fn a_folder_without_an_authority_ends_the_start() {
    let world = World::new();
    let nothing = tempfile::tempdir().unwrap();
    let arguments = ["--secure-grpc-addr", "127.0.0.1:0", "--cacerts-dir", nothing.path().to_str().unwrap()];
    let mut refused = Binary::serve(world.config.path(), &arguments, &[]);
    refused.until("the missing file", |line| line.contains("ca-cert.pem").then_some(()));
    assert!(!refused.ends_within(DEADLINE).success());
}

pub async fn secrets(client: &AdsClient) -> Result<(DiscoveryResponse, SotwStream), ClientError> {
    let mut stream = client.sotw(None).await?;
    let names = ["default", "ROOTCA"].map(String::from).to_vec();
    let type_url: String = ResourceType::Secret.url().into();
    stream.send(DiscoveryRequest { type_url, resource_names: names, ..DiscoveryRequest::default() }).await?;
    Ok((stream.next().await?, stream))
}

pub fn decoded(response: &DiscoveryResponse) -> Vec<Secret> {
    response.resources.iter().map(|any| Secret::decode(&*any.value).unwrap()).collect()
}

/// The text of a secret: the certificate chain, or the roots.
pub fn text(secrets: &[Secret], name: &str) -> String {
    let inline = |source: &Option<DataSource>| match &source.as_ref().unwrap().specifier {
        Some(Specifier::InlineBytes(bytes)) => String::from_utf8(bytes.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    };
    let secret = secrets.iter().find(|secret| secret.name == name).unwrap();
    match secret.r#type.as_ref().unwrap() {
        Type::TlsCertificate(certificate) => inline(&certificate.certificate_chain),
        Type::ValidationContext(context) => inline(&context.trusted_ca),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn stock_envoys_get_certificates_of_their_proven_identity_that_are_renewed() {
    let world = World::new();
    let lifetime = [("DEFAULT_WORKLOAD_CERT_TTL", "10s")];
    let (mut server, secure, plain) = world.serve_with(&["--trust-loopback"], &lifetime);
    let root = world.root();
    let token = world.token(&["-n", "shop", "-s", "cart"]);
    let client = AdsClient::over(channel(secure, &root, None).await.unwrap(), node("shop")).with_token(&token);
    served(&client).await;
    let (first_response, mut stream) = secrets(&client).await.unwrap();
    let first = decoded(&first_response);
    assert_eq!(text(&first, "ROOTCA").trim(), root.trim());
    let issued = text(&first, "default");
    server.until("audit line", |line| line.contains("ns/shop/sa/cart").then_some(()));

    // The word of a node is no proof: neither over plain text, nor for another service account's certificate.
    let claims = Node { metadata: None, ..node("shop") };
    let claimed = AdsClient::connect(plain, "10.0.0.9").await.unwrap().with_node(claims);
    let unproven = tokio::spawn(async move { secrets(&claimed).await.map(|(sent, _)| decoded(&sent)) });
    let of_other = world.token(&["-n", "shop", "-s", "ledger"]);
    let (other, _) = secrets(&client.with_token(&of_other)).await.unwrap();
    assert_ne!(text(&decoded(&other), "default"), issued);

    // Around half of its life the stream carries the next one.
    let acknowledged = DiscoveryRequest {
        type_url: first_response.type_url.clone(),
        resource_names: ["default", "ROOTCA"].map(String::from).to_vec(),
        response_nonce: first_response.nonce.clone(),
        version_info: first_response.version_info.clone(),
        ..DiscoveryRequest::default()
    };
    stream.send(acknowledged).await.unwrap();
    let renewed = loop {
        let sent = decoded(&stream.next().await.unwrap());
        if sent.iter().any(|secret| secret.name == "default") {
            break text(&sent, "default");
        }
    };
    assert_ne!(renewed, issued);
    // Secrets that do not exist are not answered.
    let unproven = unproven.await.unwrap();
    assert!(
        matches!(&unproven, Err(ClientError::Silence)) || unproven.as_ref().is_ok_and(Vec::is_empty),
        "{unproven:?}"
    );
}
