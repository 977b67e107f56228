//! Proofs of identity beside certificates and join tokens, in the real process: tokens of an issuer, forwarded certificates; the
//! end of a stream with its token; and debug pages for callers from elsewhere.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use pilothouse::{
    proto::envoy::service::discovery::v3::DiscoveryRequest,
    testing::{AdsClient, ClientError},
    xds::ResourceType,
};
use rcgen::{KeyPair, PKCS_ED25519, SigningKey};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    binary::Binary,
    confirm::{aside, ask},
    identity::{World, certificate, channel, clusters, code, eventually, node, served},
    ports::free_port,
    skipped::skipped,
    stage::DEADLINE,
};

const ISSUER: &str = "https://id.test";

/// Text of URL-safe base64 without padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digits = bytes.chunks(3).flat_map(|chunk| {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        (0..=chunk.len()).map(move |at| DIGITS[(bits >> (18 - 6 * at)) as usize & 63] as char)
    });
    digits.collect()
}

/// Signs tokens.
struct Issuer {
    id: &'static str,
    key: KeyPair,
}

impl Issuer {
    fn new(id: &'static str) -> Self {
        Self { id, key: KeyPair::generate_for(&PKCS_ED25519).unwrap() }
    }

    fn keys(&self) -> String {
        let x = base64(self.key.public_key_raw());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": self.id, "x": x}]}).to_string()
    }

    fn token(&self, changed: &[(&str, Value)]) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut claims = json!({"iss": ISSUER, "sub": "system:serviceaccount:shop:cart", "aud": ["istio-ca"],
            "exp": now + 3600});
        for (name, value) in changed {
            claims[*name] = value.clone();
        }
        let head = json!({"alg": "EdDSA", "typ": "JWT", "kid": self.id}).to_string();
        let signed = format!("{}.{}", base64(head.as_bytes()), base64(claims.to_string().as_bytes()));
        let signature = self.key.sign(signed.as_bytes()).unwrap();
        format!("{signed}.{}", base64(&signature))
    }
}

/// Serves a key set, or refuses while it has none.
struct KeyServer {
    port: u16,
    keys: Arc<Mutex<Option<String>>>,
}

impl KeyServer {
    fn start(keys: Option<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self { port: listener.local_addr().unwrap().port(), keys: Arc::new(Mutex::new(keys)) };
        let keys = server.keys.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 4096]);
                let answer = match keys.lock().unwrap().clone() {
                    Some(keys) => format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{keys}", keys.len()),
                    None => "HTTP/1.1 500 Down\r\ncontent-length: 0\r\n\r\n".to_string(),
                };
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        server
    }

    fn put(&self, keys: Option<String>) {
        *self.keys.lock().unwrap() = keys;
    }

    fn rule(&self) -> String {
        let uri = format!("http://127.0.0.1:{}/keys", self.port);
        json!({"issuer": ISSUER, "audiences": ["istio-ca"], "jwksUri": uri}).to_string()
    }
}

pub async fn client(world: &World, secure: SocketAddr) -> AdsClient {
    AdsClient::over(channel(secure, &world.root(), None).await.unwrap(), node("shop"))
}

#[tokio::test]
async fn tokens_of_an_issuer_prove_service_accounts() {
    let world = World::new();
    let (first, second) = (Issuer::new("first"), Issuer::new("second"));
    let keys = KeyServer::start(Some(first.keys()));
    let rule = keys.rule();
    // Keys that are replaced are fetched before they are due.
    let env = [("JWT_RULE", rule.as_str()), ("PILOT_JWT_PUB_KEY_REFRESH_INTERVAL", "24h")];
    let (mut server, secure, _) = world.serve_with(&[], &env);
    let plain = client(&world, secure).await;
    let of_first = plain.with_token(&first.token(&[]));
    served(&of_first).await;
    assert_eq!(code(clusters(&of_first.with_node(node("other"))).await), Code::PermissionDenied);
    let connection = channel(secure, &world.root(), None).await.unwrap();
    certificate(connection.clone(), Some(&first.token(&[])), &KeyPair::generate().unwrap(), 3600).await.unwrap();
    server.until("audit line", |line| line.contains("spiffe://cluster.local/ns/shop/sa/cart").then_some(()));

    let unsigned = {
        let token = first.token(&[]);
        let head = base64(br#"{"alg":"none","kid":"first"}"#);
        format!("{head}.{}.", token.split('.').nth(1).unwrap())
    };
    let foreign = Issuer::new("first").token(&[]);
    let refused = [
        first.token(&[("exp", json!(1_700_000_000))]),
        first.token(&[("iss", json!("https://other.test"))]),
        first.token(&[("aud", json!(["other"]))]),
        first.token(&[("sub", json!("cart"))]),
        first.token(&[("sub", json!("system:serviceaccount:shop"))]),
        first.token(&[("nbf", json!(4_000_000_000u64))]),
        second.token(&[]),
        unsigned,
        foreign,
    ];
    for token in &refused {
        assert_eq!(code(clusters(&plain.with_token(token)).await), Code::Unauthenticated, "{token}");
        let issued = certificate(connection.clone(), Some(token), &KeyPair::generate().unwrap(), 3600).await;
        assert_eq!(issued.unwrap_err().code(), Code::Unauthenticated, "{token}");
    }
    // Join tokens go on to hold beside them.
    served(&plain.with_token(&world.token(&["-n", "shop"]))).await;

    keys.put(Some(second.keys()));
    let of_second = plain.with_token(&second.token(&[]));
    eventually("the new key", || async { clusters(&of_second).await.is_ok() }).await;
    assert_eq!(code(clusters(&of_first).await), Code::Unauthenticated, "the key was replaced");

    keys.put(None);
    let third = Issuer::new("third").token(&[]);
    let deadline = std::time::Instant::now() + DEADLINE;
    // A token of an unknown key has the keys asked for, in vain.
    while server.lines_with("cannot be fetched") == 0 {
        assert!(std::time::Instant::now() < deadline, "the failure is never told");
        assert_eq!(code(clusters(&plain.with_token(&third)).await), Code::Unauthenticated);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(clusters(&of_second).await.is_ok(), "the last good keys stay");
    for token in refused.iter().chain([&third]) {
        let signature = token.rsplit('.').next().unwrap();
        assert!(signature.is_empty() || server.lines_with(signature) == 0, "a token is in the log");
    }
}

#[tokio::test]
async fn a_key_server_that_is_down_delays_no_start() {
    let world = World::new();
    let issuer = Issuer::new("first");
    let keys = KeyServer::start(None);
    let rule = keys.rule();
    let (_server, secure, _) = world.serve_with(&[], &[("JWT_RULE", rule.as_str())]);
    let plain = client(&world, secure).await;
    served(&plain.with_token(&world.token(&["-n", "shop"]))).await;
    let waiting = plain.with_token(&issuer.token(&[]));
    assert_eq!(code(clusters(&waiting).await), Code::Unavailable, "the client may come again");
    keys.put(Some(issuer.keys()));
    served(&waiting).await;
}

#[test]
fn a_rule_that_cannot_be_used_ends_the_start() {
    let world = World::new();
    for (rule, reason) in
        [("{", "JWT_RULE: not JSON"), (r#"{"issuer": "https://id.test"}"#, "JWT_RULE: audiences is empty")]
    {
        let mut refused = Binary::serve(world.config.path(), &[], &[("JWT_RULE", rule)]);
        refused.until(reason, |line| line.contains(reason).then_some(()));
        assert!(!refused.ends_within(DEADLINE).success());
    }
}

#[tokio::test]
async fn a_gateway_that_is_trusted_tells_of_its_clients_certificate() {
    let world = World::new();
    let header = "x-forwarded-client-cert";
    let of = |id: &str| format!("By=spiffe://cluster.local/ns/edge/sa/gateway;Hash=0a;Subject=\"CN=a\";URI={id}");
    let cart = of("spiffe://cluster.local/ns/shop/sa/cart");
    for (networks, believed) in [("127.0.0.0/8,10.0.0.0/8", true), ("10.0.0.0/8", false), ("", false), ("127", false)] {
        let (_server, secure, plain_text) = world.serve_with(&[], &[("TRUSTED_GATEWAY_CIDR", networks)]);
        let plain = client(&world, secure).await;
        served(&plain.with_token(&world.token(&["-n", "shop"]))).await;
        let forwarded = plain.with_header(header, &cart);
        if !believed {
            assert_eq!(code(clusters(&forwarded).await), Code::Unauthenticated, "{networks}");
            continue;
        }
        assert!(clusters(&forwarded).await.unwrap() > 0);
        assert_eq!(code(clusters(&forwarded.with_node(node("other"))).await), Code::PermissionDenied);
        for wrong in [
            "URI=spiffe://elsewhere/ns/shop/sa/cart".to_string(),
            "Hash=0a".to_string(),
            format!("{cart},Hash=0b"),
            format!("{cart};URI=spiffe://cluster.local/ns/shop/sa/cart"),
            format!("Cert={};URI=spiffe://cluster.local/ns/shop/sa/cart", "a".repeat(12 << 10)) + "\"",
        ] {
            let refused = clusters(&plain.with_header(header, &wrong)).await;
            assert_eq!(code(refused), Code::Unauthenticated, "{}", &wrong[..wrong.len().min(100)]);
        }
        // The element of the gateway counts, not the one that its client sent.
        let appended = format!("{},{cart}", of("spiffe://cluster.local/ns/istio-system/sa/istiod"));
        assert!(clusters(&plain.with_header(header, &appended)).await.unwrap() > 0);
        // Plain text proves nothing, whatever it forwards.
        let unproven = AdsClient::connect(plain_text, "10.0.0.9").await.unwrap().with_header(header, &cart);
        assert!(clusters(&unproven.with_node(node("other"))).await.is_ok());
    }
}

#[tokio::test]
async fn clients_over_plain_text_prove_themselves_where_a_flag_says_so() {
    let world = World::new();
    let (_server, secure, plain_text) = world.serve_with(&[], &[("XDS_AUTH_PLAINTEXT", "true")]);
    let token = world.token(&["-n", "shop"]);
    served(&client(&world, secure).await.with_token(&token)).await;
    let plain = AdsClient::connect(plain_text, "10.0.0.9").await.unwrap().with_node(node("shop"));
    assert_eq!(code(clusters(&plain).await), Code::Unauthenticated);
    let proven = plain.with_token(&token);
    assert!(clusters(&proven).await.unwrap() > 0);
    assert_eq!(code(clusters(&proven.with_node(node("other"))).await), Code::PermissionDenied);
}

#[tokio::test]
async fn a_stream_ends_with_the_token_that_opened_it() {
    let world = World::new();
    let (_server, secure) = world.serve(&[]);
    let plain = client(&world, secure).await;
    let (one, two) = (world.token(&["-n", "shop"]), world.token(&["-n", "shop"]));
    let (first, second) = (plain.with_token(&one), plain.with_token(&two));
    served(&first).await;
    let request = || DiscoveryRequest { type_url: ResourceType::Cluster.url().into(), ..DiscoveryRequest::default() };
    let mut streams = Vec::new();
    for client in [&first, &second] {
        let mut stream = client.sotw(None).await.unwrap();
        stream.send(request()).await.unwrap();
        stream.next().await.unwrap();
        streams.push(stream);
    }
    let (mut reports, mut answers) = first.load_reports().await.map(|(r, a)| (Some(r), a)).unwrap();
    let report = pilothouse::proto::envoy::service::load_stats::v3::LoadStatsRequest {
        node: Some(node("shop")),
        ..Default::default()
    };
    reports.as_ref().unwrap().send(report).await.unwrap();
    answers.message().await.unwrap();
    world.revoke(&one);
    let ended = loop {
        match streams[0].next().await {
            Err(ClientError::Status(status)) => break status,
            Err(ClientError::Silence) => panic!("the stream stands"),
            Ok(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
    assert!(ended.message().contains("revoked"), "{ended}");
    let of_reports = tokio::time::timeout(DEADLINE, answers.message()).await.unwrap().unwrap_err();
    assert_eq!(of_reports.code(), Code::Unauthenticated);
    drop(reports.take());
    assert_eq!(code(clusters(&first).await), Code::Unauthenticated);
    // The other token's stream stands, and so does one that is opened with it now.
    streams[1].send(DiscoveryRequest { type_url: ResourceType::Listener.url().into(), ..request() }).await.unwrap();
    streams[1].next().await.unwrap();
    assert!(clusters(&second).await.is_ok());
}

#[tokio::test]
async fn a_stream_ends_with_the_last_root_above_the_certificate_that_opened_it() {
    let world = World::new();
    let cacerts = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let day = Duration::from_secs(86_400);
        pilothouse::identity::authority::new_root(name, SystemTime::now(), day).unwrap()
    };
    let (one, two) = (make("one"), make("two"));
    let put = |material: &pilothouse::identity::authority::Material, roots: &str| {
        for (name, text) in
            [("ca-key.pem", material.key.as_str()), ("ca-cert.pem", &material.certificate), ("root-cert.pem", roots)]
        {
            let (path, new) = (cacerts.path().join(name), cacerts.path().join("new"));
            std::fs::write(&new, text).unwrap();
            std::fs::rename(new, path).unwrap();
        }
    };
    let both = one.roots.clone() + &two.roots;
    put(&one, &one.roots);
    let (mut server, secure) = world.serve(&["--cacerts-dir", cacerts.path().to_str().unwrap()]);
    let token = world.token(&["-n", "shop", "-s", "cart"]);
    let connection = channel(secure, &one.roots, None).await.unwrap();
    served(&AdsClient::over(connection.clone(), node("shop")).with_token(&token)).await;
    let key = KeyPair::generate().unwrap();
    let chain = certificate(connection.clone(), Some(&token), &key, 3600).await.unwrap();
    let identity = tonic::transport::Identity::from_pem(&chain[0], key.serialize_pem());
    let certified = AdsClient::over(channel(secure, &one.roots, Some(identity)).await.unwrap(), node("shop"));
    let by_token = AdsClient::over(connection, node("shop")).with_token(&token);
    let open = async |client: &AdsClient| {
        let mut stream = client.sotw(None).await.unwrap();
        stream.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
        stream.next().await.unwrap();
        stream
    };
    let (mut first, mut second) = (open(&certified).await, open(&by_token).await);

    // While both roots are trusted the stream stands, whichever of them issues.
    put(&two, &both);
    server.until("the new authority", |line| line.contains("a new certificate authority is in force").then_some(()));
    first.subscribe(ResourceType::Listener, &[], "").await.unwrap();
    first.next().await.unwrap();
    assert!(clusters(&certified).await.is_ok());

    put(&two, &two.roots);
    let ended = loop {
        match first.next().await {
            Err(ClientError::Status(status)) => break status,
            Err(ClientError::Silence) => panic!("the stream stands"),
            Ok(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
    assert_eq!(code(clusters(&certified).await), Code::Unauthenticated, "on the connection that stands");
    second.subscribe(ResourceType::Listener, &[], "").await.unwrap();
    second.next().await.unwrap();
}

/// An address of this machine that is none of the loopback interface; nothing is sent to find it.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[tokio::test]
async fn debug_pages_answer_callers_from_elsewhere_by_their_token() {
    let Some(own) = own_address() else {
        skipped("this machine has no address but those of the loopback interface");
        return;
    };
    let world = World::new();
    let listen = ["--secure-grpc-addr", "127.0.0.1:0", "--state-dir", world.state.path().to_str().unwrap()];
    let http = |port: u16| ["--http-addr".to_string(), format!("0.0.0.0:{port}")];
    let start = |env: &[(&str, &str)]| {
        let port = free_port();
        let http = http(port);
        let grpc = ["--log-format", "json", "--grpc-addr", "127.0.0.1:0", &http[0], &http[1]];
        let mut server = Binary::serve_with(world.config.path(), &[&grpc[..], &listen].concat(), env);
        let secure = server.until("address", |line| {
            serde_json::from_str::<Value>(line).ok()?["secure_grpc"].as_str()?.parse::<SocketAddr>().ok()
        });
        (server, secure, port)
    };
    let status = |address: SocketAddr, page: &str, token: &str| {
        let authorization = if token.is_empty() { String::new() } else { format!("\r\nAuthorization: Bearer {token}") };
        let request = format!("GET {page} HTTP/1.0\r\nHost: pilothouse.mesh{authorization}");
        aside(move || {
            let answer = ask(address, &request);
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            (head.split(' ').nth(1).unwrap().parse::<u16>().unwrap(), format!("{head}\n{body}"))
        })
    };

    let (mut server, secure, port) = start(&[("DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES", "tools, other")]);
    let (elsewhere, local) = (SocketAddr::new(own, port), SocketAddr::from(([127, 0, 0, 1], port)));
    let [root, shop, bank, tools] =
        ["istio-system", "shop", "bank", "tools"].map(|namespace| world.token(&["-n", namespace]));
    let proxy = client(&world, secure).await.with_token(&shop);
    served(&proxy).await;
    let mut stream = proxy.sotw(None).await.unwrap();
    stream.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
    stream.next().await.unwrap();

    let id = {
        let (code, text) = status(elsewhere, "/debug/connections", &root).await;
        assert_eq!(code, 200, "{text}");
        let found = text.split('"').find(|part| part.contains("client.shop")).expect("the proxy is listed");
        found.to_string()
    };
    let dump = format!("/debug/config_dump?proxyID={id}");
    for (page, token, wanted) in [
        ("/debug/configz", "", 401),
        ("/debug/configz", "made-up", 401),
        ("/", "", 401),
        ("/debug/configz", root.as_str(), 200),
        ("/debug/syncz", &root, 200),
        ("/", &root, 200),
        ("/debug/list", &root, 200),
        (&dump, &root, 200),
        ("/debug/configz", &tools, 200),
        ("/debug/configz", &shop, 403),
        ("/debug/syncz", &shop, 403),
        ("/debug", &shop, 403),
        ("/", &shop, 403),
        (&dump, &shop, 200),
        (&format!("/debug/edsz?proxyID={id}"), &shop, 200),
        (&dump, &bank, 404),
        ("/debug/config_dump", &bank, 400),
        ("/debug/config%5Fdump", &bank, 403),
        ("/debug//configz", &bank, 403),
    ] {
        let (found, text) = status(elsewhere, page, token).await;
        assert_eq!(found, wanted, "{page}: {text}");
        assert!(found != 401 || text.to_ascii_lowercase().contains("www-authenticate: bearer"), "{text}");
    }
    // A page with an effect is for the root namespace too.
    let push = |token: &str| {
        let request = format!("POST /debug/adsz?push=true HTTP/1.0\r\nAuthorization: Bearer {token}");
        aside(move || ask(elsewhere, &request))
    };
    assert!(push(&shop).await.starts_with("HTTP/1.0 403"));
    assert!(push(&root).await.contains("Pushed to"));
    // On this machine a token makes up for a name that could be one of a web site.
    assert_eq!(status(local, "/debug/configz", "").await.0, 403);
    assert_eq!(status(local, "/debug/configz", &root).await.0, 200);
    world.revoke(&root);
    assert_eq!(status(elsewhere, "/debug/configz", &root).await.0, 401);
    for token in [&root, &shop, "made-up"] {
        assert_eq!(server.lines_with(token), 0, "a token is in the log");
    }
    // Headers without end are no memory.
    let mut long = TcpStream::connect(elsewhere).unwrap();
    let _ = long
        .write_all(format!("GET /debug/configz HTTP/1.0\r\nAuthorization: Bearer {}", "a".repeat(1 << 20)).as_bytes());
    drop(long);
    assert_eq!(status(elsewhere, "/debug/configz", "").await.0, 401);
    drop(server);

    let (_server, _, port) = start(&[("ENABLE_DEBUG_ENDPOINT_AUTH", "false")]);
    let elsewhere = SocketAddr::new(own, port);
    eventually("any identity sees all", || async { status(elsewhere, "/debug/queuez", &shop).await.0 == 200 }).await;
    assert_eq!(status(elsewhere, "/debug/queuez", "").await.0, 401);
    let (_server, _, port) = start(&[("ENABLE_DEBUG_ON_HTTP", "false")]);
    assert_eq!(status(SocketAddr::from(([127, 0, 0, 1], port)), "/debug/queuez", "").await.0, 404);
    let probed = || async { status(SocketAddr::new(own, port), "/ready", "").await.0 == 200 };
    eventually("probes are answered", probed).await;
}
