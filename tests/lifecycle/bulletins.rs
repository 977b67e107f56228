//! The classes of security bulletins of Istio and its neighbours that are about the control plane itself. Those about traffic
//! are in the tests of the clients, floods and stubborn clients in `attacks` and in the tests of the protocol, references between
//! namespaces in `references`. Two have no test, since nothing of the kind is built: templates of workloads (CVE-2022-21701)
//! and patches of resources (CVE-2026-22771).

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use pilothouse::{
    proto::{
        envoy::{
            config::core::v3::{Node, data_source::Specifier},
            extensions::transport_sockets::tls::v3::{Secret, secret::Type},
            service::discovery::v3::DiscoveryRequest,
        },
        json_to_struct,
    },
    testing::AdsClient,
    xds::ResourceType,
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use tonic::{Code, Status, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;

use crate::{
    confirm::{aside, ask},
    forged::{credential, sent},
    identity::{World, channel, clusters, code, node, served, text},
    stage::DEADLINE,
};

/// The output of `validate` for these documents, and the time that it took.
fn validated(documents: &str) -> (String, Duration) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), documents).unwrap();
    let start = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_pilothouse")).arg("validate").arg(dir.path()).output().unwrap();
    assert!(output.status.code().is_some(), "it crashed: {output:?}");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (text.concat(), start.elapsed())
}

fn object(group: &str, kind: &str, spec: &Value) -> String {
    let metadata = json!({"name": "a", "namespace": "shop"});
    json!({"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec}).to_string()
}

/// ISTIO-SECURITY-2026-006, CVE-2022-24726, CVE-2022-24921, CVE-2022-39278: expressions without bounds, compiled when an
/// object is admitted.
#[test]
fn istio_security_2026_006_expressions_are_bounded_before_they_are_compiled() {
    let long = "a".repeat(1 << 20);
    let nested = "(".repeat(50_000) + &")".repeat(50_000);
    let counted = "((a{900}){900}){900}".to_string();
    for expression in [long, nested, counted] {
        let filter = json!({"configPatches": [{"applyTo": "CLUSTER", "match": {"proxy": {"proxyVersion": expression}},
            "patch": {"operation": "MERGE", "value": {}}}]});
        let route = json!({"hosts": ["a.example"], "http": [{"match": [{"uri": {"regex": expression}}],
            "route": [{"destination": {"host": "a.example"}}]}]});
        let cors = json!({"hosts": ["a.example"], "http": [{"corsPolicy": {"allowOrigins": [{"regex": expression}]},
            "route": [{"destination": {"host": "a.example"}}]}]});
        for document in [
            object("networking.istio.io/v1alpha3", "EnvoyFilter", &filter),
            object("networking.istio.io/v1", "VirtualService", &route),
            object("networking.istio.io/v1", "VirtualService", &cors),
        ] {
            let (text, time) = validated(&document);
            let about = &document[..80];
            assert!(!text.contains("0 refused, 0 warnings"), "{about}: {}", &text[..text.len().min(500)]);
            assert!(text.len() < 64 << 10, "{about}: {} bytes are said", text.len());
            assert!(time < DEADLINE, "{about}: {time:?}");
        }
    }
}

/// CVE-2019-11253, CVE-2019-11254: aliases that multiply, and depth without end.
#[test]
fn cve_2019_11253_documents_that_grow_are_refused_and_take_no_other_along() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_string();
    for level in 1..12 {
        let references = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb += &format!("a{level}: &a{level} [{references}]\n");
    }
    let deep = format!("spec: {}{}", "[".repeat(100_000), "]".repeat(100_000));
    let fine = object("networking.istio.io/v1", "DestinationRule", &json!({"host": "a.example"}));
    for document in [bomb, deep] {
        let (text, time) = validated(&format!("{document}\n---\n{fine}\n"));
        assert!(text.contains("1 objects taken"), "{}", &text[..text.len().min(500)]);
        assert!(time < DEADLINE, "{time:?}");
    }
}

/// One call with an empty message to any method, without an identity.
async fn call(channel: &Channel, path: &str) -> Result<(), Status> {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.map_err(|e| Status::unavailable(e.to_string()))?;
    let codec = ProstCodec::<DiscoveryRequest, DiscoveryRequest>::default();
    let request = tonic::Request::new(tokio_stream::iter([DiscoveryRequest::default()]));
    let mut answers = grpc.streaming(request, path.parse().unwrap(), codec).await?.into_inner();
    let next = tokio::time::timeout(DEADLINE, answers.message()).await;
    next.map_err(|_| Status::deadline_exceeded("no answer"))?.map(drop)
}

/// CVE-2026-53714 of Envoy Gateway: streams were guarded, single calls were not. CVE-2026-31838 of Istio: pages without a proof.
#[tokio::test]
async fn cve_2026_53714_no_method_of_the_secure_listener_answers_a_stranger() {
    let world = World::new();
    let (_server, secure) = world.serve(&[]);
    let channel = channel(secure, &world.root(), None).await.unwrap();
    let kinds = [
        ("cluster", "Cluster"),
        ("endpoint", "Endpoint"),
        ("listener", "Listener"),
        ("route", "Route"),
        ("secret", "Secret"),
    ];
    let single = kinds.iter().flat_map(|(package, kind)| {
        ["Stream", "Delta", "Fetch"]
            .map(|verb| format!("/envoy.service.{package}.v3.{kind}DiscoveryService/{verb}{kind}s"))
    });
    let others = [
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
        "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats",
        "/istio.v1.auth.IstioCertificateService/CreateCertificate",
        "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus",
        "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus",
    ];
    for path in single.chain(others.map(String::from)) {
        let mut status = call(&channel, &path).await.expect_err(&path);
        // Before the first configuration is complete nobody is judged.
        let began = Instant::now();
        while status.code() == Code::Unavailable && began.elapsed() < DEADLINE {
            tokio::time::sleep(Duration::from_millis(20)).await;
            status = call(&channel, &path).await.expect_err(&path);
        }
        assert!(matches!(status.code(), Code::Unauthenticated | Code::Unimplemented), "{path}: {status:?}");
    }
    for page in ["istio.io/debug/configz", "istio.io/debug/syncz", "istio.io/connections"] {
        let mut stream = AdsClient::over(channel.clone(), node("istio-system")).sotw(None).await.unwrap();
        let request = DiscoveryRequest { type_url: page.into(), ..DiscoveryRequest::default() };
        let _ = stream.send(request).await;
        assert!(stream.next().await.is_err(), "{page}");
    }
}

/// ISTIO-SECURITY-2026: the `api` generator gave all objects to any client. Here it is one of the root namespace that has them.
#[tokio::test]
async fn objects_over_xds_are_for_the_root_namespace_alone() {
    let world = World::new();
    let (_server, secure) = world.serve(&[]);
    let channel = channel(secure, &world.root(), None).await.unwrap();
    let of = |namespace: &str| {
        let token = world.token(&["-n", namespace, "-s", "reader"]);
        let metadata = json_to_struct(&json!({"GENERATOR": "api"}));
        AdsClient::over(channel.clone(), Node { metadata, ..node(namespace) }).with_token(&token)
    };
    let (own, other) = (of("istio-system"), of("shop"));
    served(&AdsClient::over(channel.clone(), node("shop")).with_token(&world.token(&["-n", "shop", "-s", "a"]))).await;
    let entries = |client: AdsClient| async move {
        let mut stream = client.sotw(None).await?;
        let type_url = "networking.istio.io/v1/ServiceEntry".into();
        let _ = stream.send(DiscoveryRequest { type_url, ..DiscoveryRequest::default() }).await;
        stream.next().await.map(|response| response.resources.len())
    };
    assert_eq!(entries(own).await.unwrap(), 1);
    assert!(entries(other).await.is_err(), "a namespace of users reads all objects");
}

/// CVE-2022-23635: a crafted message crashed the control plane before its sender proved anything. RUSTSEC-2020-0002: messages
/// without end of depth.
#[tokio::test]
async fn cve_2022_23635_noise_before_a_proof_does_no_harm() {
    let world = World::new();
    let (mut server, secure) = world.serve(&[]);
    let root = world.root();
    for bytes in
        [&b"\x16\x03\x01\xff\xff"[..], &[0; 4096], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"]
    {
        noise(secure, bytes);
    }
    let channel = channel(secure, &root, None).await.unwrap();
    let stranger = AdsClient::over(channel, node("shop"));
    assert_eq!(code(clusters(&stranger).await), Code::Unauthenticated);
    let known = stranger.with_token(&world.token(&["-n", "shop", "-s", "cart"]));
    served(&known).await;
    // Deeper than any decoder follows.
    let deep = (0..300).fold(json!({}), |inner, _| json!({ "a": inner }));
    let metadata = json_to_struct(&deep);
    for client in [&stranger, &known] {
        let crafted = client.with_node(Node { metadata: metadata.clone(), ..node("shop") });
        assert!(clusters(&crafted).await.is_err(), "a crafted message is answered");
    }
    served(&known).await;
    assert_eq!(server.lines_with("panic"), 0);
}

/// CVE-2024-28854: clients that begin no handshake held up those that came after.
#[tokio::test]
async fn cve_2024_28854_silent_handshakes_hold_nobody_up_and_are_ended() {
    let world = World::new();
    let (_server, secure) = world.serve(&[]);
    let mut silent: Vec<_> = (0..50).map(|_| TcpStream::connect(secure).unwrap()).collect();
    for (socket, half) in silent.iter_mut().zip([&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01"].into_iter().cycle()) {
        socket.write_all(half).unwrap();
    }
    let client = AdsClient::over(channel(secure, &world.root(), None).await.unwrap(), node("shop"));
    served(&client.with_token(&world.token(&["-n", "shop"]))).await;
    aside(move || {
        for mut socket in silent {
            socket.set_read_timeout(Some(DEADLINE)).unwrap();
            let ended = socket.read_to_end(&mut Vec::new());
            let stands = ended.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
            assert!(!stands, "a silent socket is kept");
        }
    })
    .await;
}

/// Sends bytes and waits until the server has enough of them.
fn noise(address: SocketAddr, bytes: &[u8]) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(std::net::Shutdown::Write);
    let _ = socket.read_to_end(&mut Vec::new());
}

/// CVE-2022-39388: callers on the same machine could claim any identity.
#[tokio::test]
async fn cve_2022_39388_the_address_of_a_client_proves_nothing_to_the_secure_listener() {
    let world = World::new();
    let (_server, secure) = world.serve(&[]);
    assert!(secure.ip().is_loopback());
    let channel = channel(secure, &world.root(), None).await.unwrap();
    let stranger = AdsClient::over(channel, node("istio-system"));
    assert_eq!(code(clusters(&stranger).await), Code::Unauthenticated);
    let cart = stranger.with_node(node("shop")).with_token(&world.token(&["-n", "shop", "-s", "cart"]));
    served(&cart).await;
    assert_eq!(code(clusters(&cart.with_node(node("istio-system"))).await), Code::PermissionDenied);
    let claimed = json_to_struct(&json!({"SERVICE_ACCOUNT": "admin", "NAMESPACE": "shop"}));
    let claims = cart.with_node(Node { metadata: claimed, ..node("shop") });
    assert_eq!(code(clusters(&claims).await), Code::PermissionDenied);
}

/// A line of the private key of a secret, of those that tell it from others.
fn key_line(secrets: &[Secret], name: &str) -> String {
    let secret = secrets.iter().find(|secret| secret.name == name).unwrap();
    let Some(Type::TlsCertificate(certificate)) = &secret.r#type else { panic!("{name}") };
    match &certificate.private_key.as_ref().unwrap().specifier {
        Some(Specifier::InlineBytes(key)) => std::str::from_utf8(key).unwrap().lines().nth(2).unwrap().to_string(),
        other => panic!("{other:?}"),
    }
}

/// The files below a folder, with their text.
fn files(folder: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: std::path::PathBuf| {
        if path.is_dir() {
            return files(&path);
        }
        vec![(path.display().to_string(), String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned())]
    };
    entries.flat_map(of).collect()
}

/// CVE-2021-34824: answers with keys were kept without regard to the client, so that any client could be sent any key.
#[tokio::test]
async fn cve_2021_34824_clients_that_share_a_view_are_sent_their_own_keys_alone() {
    let world = World::new();
    let own = [("shop", credential(&world, "shop")), ("bank", credential(&world, "bank"))];
    let (mut server, [secure, _, http]) = world.serve_pages(&[], &[]);
    let stranger = AdsClient::over(channel(secure, &world.root(), None).await.unwrap(), node("shop"));
    let clients =
        own.iter().flat_map(|(namespace, certificate)| ["cart", "ledger"].map(|a| (*namespace, a, certificate)));
    let clients: Vec<_> = clients
        .map(|(namespace, account, certificate)| {
            let token = world.token(&["-n", namespace, "-s", account]);
            let id = format!("spiffe://cluster.local/ns/{namespace}/sa/{account}");
            (id, namespace, certificate.trim(), stranger.with_node(node(namespace)).with_token(&token))
        })
        .collect();
    served(&clients[0].3).await;
    let (mut streams, mut keys) = (Vec::new(), std::collections::BTreeSet::new());
    for (round, is_delta) in [false, true, true, false].into_iter().enumerate() {
        let order: Box<dyn Iterator<Item = _>> =
            if round % 2 == 0 { Box::new(clients.iter()) } else { Box::new(clients.iter().rev()) };
        for (id, namespace, certificate, client) in order {
            let names = ["default", "kubernetes://tls", "kubernetes://shop/tls", "kubernetes://bank/tls"];
            let (secrets, stream) = sent(client, &names, is_delta).await;
            streams.push(stream);
            let leaf = CertificateDer::from_pem_slice(text(&secrets, "default").as_bytes()).unwrap();
            assert_eq!(pilothouse::identity::tls::identity_of(&leaf).unwrap().to_string(), *id);
            let mut told: Vec<&str> = secrets.iter().map(|secret| &*secret.name).collect();
            told.sort_unstable();
            let qualified = format!("kubernetes://{namespace}/tls");
            assert_eq!(told, ["default", &qualified, "kubernetes://tls"], "{id}");
            for name in ["kubernetes://tls", &qualified] {
                assert_eq!(text(&secrets, name).trim(), *certificate, "{id}: {name}");
                keys.insert(key_line(&secrets, name));
            }
            keys.insert(key_line(&secrets, "default"));
        }
    }
    assert_eq!(keys.len(), own.len() + clients.len(), "each client has a key of its own");

    // The keys are on the streams alone: not on pages, in the log or in files.
    let page = |path: String| aside(move || ask(http, &format!("GET {path} HTTP/1.0")));
    let list = page("/debug/list".to_string()).await;
    let paths: Vec<String> = serde_json::from_str(list.split_once("\r\n\r\n").unwrap().1).unwrap();
    let connections = page("/debug/connections".to_string()).await;
    let id = connections.split('"').find(|part| part.contains("client.shop")).expect("the proxy is listed");
    let mut shown = String::new();
    for path in paths.iter().map(String::as_str).chain(["/metrics", "/"]) {
        shown += &page(format!("{path}?proxyID={id}")).await;
    }
    assert!(shown.contains("kubernetes://shop/tls"), "the pages tell of the secrets by name");
    // The same as base64 of the whole text.
    let hidden = ["PRIVATE KEY", "LS0tLS1CRUdJTiBQUklWQVRF"];
    for text in keys.iter().map(String::as_str).chain(hidden) {
        assert!(!shown.contains(text), "a page shows a key");
        assert_eq!(server.lines_with(text), 0, "a key is in the log");
    }
    for (path, text) in files(world.state.path()) {
        assert!(!keys.iter().any(|key| text.contains(key)), "{path}");
        assert!(!text.contains("PRIVATE KEY") || path.ends_with("identity/root-key.pem"), "{path}");
    }
    drop(streams);
}

/// GHSA-fgw5-hp8f-xfhc: a policy led the control plane to servers that only it can reach. Beside link-local addresses, those
/// that the operator names are closed.
#[test]
fn ghsa_fgw5_hp8f_xfhc_keys_are_not_fetched_from_link_local_and_named_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let uris = [
        "http://169.254.169.254/keys",
        "http://[fe80::1]/keys",
        "http://100.100.100.200/keys",
        "http://127.0.0.1:9/keys",
        "https://[::1]:9/keys",
    ];
    let rules: Vec<Value> = uris.iter().map(|uri| json!({"issuer": uri, "jwksUri": uri})).collect();
    let text = object("security.istio.io/v1", "RequestAuthentication", &json!({"jwtRules": rules}));
    fs::write(dir.path().join("a.yaml"), text).unwrap();
    let closed = [("BLOCKED_CIDRS_IN_JWKS_URIS", "127.0.0.0/8,::1/128")];
    let mut server = crate::binary::Binary::serve(dir.path(), &[], &closed);
    for _ in 0..rules.len() {
        server.until("an address is not connected to", |line| line.contains("may not be connected to").then_some(()));
    }
}

/// CVE-2021-31921: a gateway between networks let callers reach services that are not for them.
#[tokio::test]
async fn cve_2021_31921_auto_passthrough_leads_to_exported_services_alone() {
    let world = World::new();
    let document = |kind: &str, namespace: &str, name: &str, spec: Value| {
        let metadata = json!({"name": name, "namespace": namespace});
        let object = json!({"apiVersion": "networking.istio.io/v1", "kind": kind, "metadata": metadata, "spec": spec});
        fs::write(world.config.path().join(format!("{namespace}-{name}.yaml")), object.to_string()).unwrap();
    };
    for (name, export_to) in [("public", "*"), ("hidden", ".")] {
        let spec = json!({"hosts": [format!("{name}.example.com")], "exportTo": [export_to], "location": "MESH_INTERNAL",
            "resolution": "STATIC", "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
            "endpoints": [{"address": "10.0.0.1"}]});
        document("ServiceEntry", "bank", name, spec);
    }
    let server = json!({"port": {"number": 15443, "name": "tls", "protocol": "TLS"}, "hosts": ["*.example.com"],
        "tls": {"mode": "AUTO_PASSTHROUGH"}});
    document("Gateway", "edge", "gateway", json!({"selector": {"app": "edge"}, "servers": [server]}));
    let (_server, _, plain) = world.serve_with(&[], &[]);
    let client = AdsClient::connect(plain, "10.0.0.9").await.unwrap().with_node(Node {
        id: "router~10.0.0.9~gateway.edge~edge.svc.cluster.local".into(),
        metadata: json_to_struct(&json!({"LABELS": {"app": "edge"}})),
        ..Node::default()
    });
    let start = Instant::now();
    let listeners = loop {
        assert!(start.elapsed() < DEADLINE, "no listener");
        let Ok(mut stream) = client.sotw(None).await else { continue };
        // A server that is not ready yet ends the stream at once.
        let _ = stream.subscribe(ResourceType::Listener, &[], "").await;
        match stream.next().await {
            Ok(response) if !response.resources.is_empty() => break response.resources,
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let text: String = listeners.iter().map(|any| String::from_utf8_lossy(&any.value).into_owned()).collect();
    assert!(text.contains("public.example.com"), "{text}");
    assert!(!text.contains("hidden.example.com"), "{text}");
}

/// ISTIO-SECURITY-2026-002: a VirtualService of any namespace takes a host of another one. As in Istio it is in force, unless the
/// mesh keeps VirtualServices to their own namespaces; `validate` tells of it.
#[test]
fn istio_security_2026_002_a_host_that_another_namespace_takes_is_told_and_can_be_kept() {
    let dir = tempfile::tempdir().unwrap();
    let object = |kind: &str, namespace: &str, name: &str, spec: &Value| {
        let metadata = json!({"name": name, "namespace": namespace});
        format!(
            "---\n{}\n",
            json!({"apiVersion": "networking.istio.io/v1", "kind": kind, "metadata": metadata, "spec": spec})
        )
    };
    let service = |namespace: &str, host: &str| {
        let spec = json!({"hosts": [host], "location": "MESH_INTERNAL", "resolution": "STATIC",
            "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "endpoints": [{"address": "10.0.0.1"}]});
        object("ServiceEntry", namespace, "own", &spec)
    };
    let routes = |namespace: &str, host: &str, more: &Value| {
        let mut spec = json!({"hosts": [host], "http": [{"route": [{"destination": {"host": "evil.example"}}]}]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object("VirtualService", namespace, "routes", &spec)
    };
    let services = service("bank", "bank.example") + &service("evil", "evil.example");
    fs::create_dir(dir.path().join("config")).unwrap();
    let text = services.clone() + &routes("evil", "bank.example", &json!({}));
    fs::write(dir.path().join("config/a.yaml"), text).unwrap();
    // The cluster to which calls of `bank.example` go, of a caller in this namespace.
    let called = |caller: &str, mesh: &Value| {
        let (settings, out) = (dir.path().join("mesh.yaml"), dir.path().join("out"));
        fs::write(&settings, mesh.to_string()).unwrap();
        let mut render = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        render.args(["render", "--node", &format!("sidecar~10.0.0.9~a.{caller}~{caller}.svc.cluster.local")]);
        render.arg("--config-dir").arg(dir.path().join("config")).arg("--mesh-config").arg(&settings);
        let output = render.arg("--out").arg(&out).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let routes: Value = serde_json::from_slice(&fs::read(out.join("routes.json")).unwrap()).unwrap();
        let hosts = routes.as_array().unwrap().iter().flat_map(|r| r["virtualHosts"].as_array().unwrap());
        let bank = hosts.clone().find(|host| host["name"] == "bank.example:80").unwrap();
        bank["routes"][0]["route"]["cluster"].as_str().unwrap().to_string()
    };
    assert_eq!(called("shop", &json!({})), "outbound|80||evil.example", "as in Istio");
    let own = json!({"defaultVirtualServiceExportTo": ["."]});
    assert_eq!(called("shop", &own), "outbound|80||bank.example");
    assert_eq!(called("evil", &own), "outbound|80||evil.example");

    let told = |routes: &str| validated(&(services.clone() + routes)).0.contains("routes callers of every namespace");
    assert!(told(&routes("evil", "bank.example", &json!({}))));
    assert!(told(&routes("evil", "bank.example", &json!({"gateways": ["mesh", "edge"], "exportTo": ["*"]}))));
    for more in [json!({"exportTo": ["."]}), json!({"gateways": ["edge"]})] {
        assert!(!told(&routes("evil", "bank.example", &more)), "{more}");
    }
    assert!(!told(&routes("bank", "bank.example", &json!({}))) && !told(&routes("evil", "evil.example", &json!({}))));
}
