//! The pages under attack: readers of dear pages, connections that say nothing, paths that lead elsewhere, pushes without end,
//! and text from outside.

use std::time::Duration;

use futures::FutureExt;
use pilothouse::{
    proto::{
        envoy::config::core::v3::{DataSource, Node, data_source::Specifier},
        google, json_to_struct, to_json,
    },
    testing::AdsClient,
    xds::ResourceType::{Cluster, Secret},
};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::{Attacked, ask, request, send, size};
use crate::stage::entry;

/// Pages whose answers grow with the mesh.
const DEAR: [&str; 8] = [
    "/",
    "/debug/configz",
    "/debug/registryz",
    "/debug/endpointShardz",
    "/debug/adsz",
    "/debug/syncz",
    "/debug/statusz",
    "/metrics",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_dear_pages_delay_neither_probes_nor_clients() {
    let mut attacked = Attacked::plain().await;
    let count = size(300, 5000);
    let many: String = (0..count).map(|n| entry(&format!("x{n}"), &format!("x{n}.far"))).collect();
    attacked.write(
        "many.yaml",
        many.replace("namespace: shop", "namespace: far").replace("spec:\n", "spec:\n  exportTo: ['.']\n"),
    );
    let (http, last) = (attacked.http, format!("x{}.far", count - 1));
    while !ask(http, "GET /debug/registryz").await.body.contains(&last) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let readers = (0..40).map(|reader| {
        let reading = async move {
            for page in DEAR.iter().cycle().skip(reader) {
                let answer = ask(http, &format!("GET {page}")).await;
                let told = answer.status == 503 && answer.head.contains("retry-after");
                assert!(answer.status == 200 || told, "{page}: {}", answer.head);
            }
        };
        reading.boxed()
    });
    attacked.besieged("40 readers of dear pages", size(4, 50), readers.collect()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_the_pages_that_never_ask() {
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let mut attacked = Attacked::plain().await;
    let http = attacked.http;
    let count = size(1200, 3000);
    let connecting = async move {
        let mut held = Vec::new();
        for number in 0..count {
            let mut socket = TcpStream::connect(http).await.expect("a descriptor");
            let begun: &[u8] =
                [&b""[..], b"GET /debug/con", b"POST /debug/adsz HTTP/1.1\r\nContent-Length: 9\r\n\r\n"][number % 3];
            let _ = socket.write_all(begun).await;
            held.push(socket);
        }
        held
    };
    attacked.under("connections to the pages", connecting).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_that_lead_elsewhere_lead_nowhere() {
    let mut attacked = Attacked::plain().await;
    let http = attacked.http;
    let asking = async move {
        let long = format!("/debug/{}", "a".repeat(60_000));
        let longer = format!("/debug/{}", "a".repeat(1 << 20));
        let query = format!("/debug/config_dump?proxyID={}", "../".repeat(10_000));
        for path in [
            "/../../../../etc/passwd",
            "/debug/../../../etc/passwd",
            "/debug/%2e%2e/%2e%2e/etc/passwd",
            "/debug/..%2f..%2fetc%2fpasswd",
            "/debug/%252e%252e%252fetc/passwd",
            "//etc/passwd",
            "/debug//configz",
            "/debug/configz/",
            "/debug/configz%00",
            "/debug/%00",
            "/%00",
            "/debug/configz%ff%fe",
            "/debug/configz%",
            "/debug/\\..\\..\\etc",
            "/debug/..;/configz",
            "/debug/config_dump?proxyID=../../../etc/passwd",
            "/debug/config_dump?proxyID=%00",
            "/DEBUG/CONFIGZ",
            "/debug/..",
            "*",
            "http://evil.example/debug/configz",
            "file:///etc/passwd",
            "",
            "configz",
            "/debug/{page}",
            &long,
            &longer,
            &query,
        ] {
            let shown = &path[..path.len().min(60)];
            let bytes = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            // Bytes that are no request of HTTP may be answered by hanging up.
            let Some(answer) = send(http, bytes.as_bytes()).await else { continue };
            assert!((400..500).contains(&answer.status), "{shown}: {}", answer.head);
            assert!(!answer.body.contains("root:") && !answer.body.contains("a.example"), "{shown}: {}", answer.body);
            assert!(answer.body.len() < 100_000, "{shown}: an answer of {} bytes", answer.body.len());
        }
        for bytes in [&b"GET /debug/con\0figz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"[..], b"\0\0\0\0\r\n\r\n", b"GET\r\n\r\n",
            b"GET /ready HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\nConnection: close\r\n\r\nzzz\r\n",
            b"GET /ready HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"] {
            if let Some(answer) = send(http, bytes).await {
                assert!((400..500).contains(&answer.status), "{}", answer.head);
            }
        }
    };
    attacked.under("paths that lead elsewhere", asking).await;
}

/// A real change is never lost behind a push that a page asks for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_without_end_beside_real_changes() {
    let mut attacked = Attacked::plain().await;
    let http = attacked.http;
    let pushers = (0..2).map(|_| {
        let pushing = async move {
            loop {
                let answer = ask(http, "POST /debug/adsz?push=true").await;
                assert_eq!(answer.status, 200, "{}", answer.head);
            }
        };
        pushing.boxed()
    });
    attacked.besieged("pushes of the page", size(10, 40), pushers.collect()).await;
}

const SCRIPT: &str = "<script>alert(1)</script>";

/// Text of clients and files is shown, and is never part of a page.
#[tokio::test]
async fn text_from_outside_is_no_part_of_a_page() {
    let mut attacked = Attacked::plain().await;
    let refused = format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: \"x{SCRIPT}\", namespace: shop}}\n"
    );
    attacked.write("b\"onload=\"<img src=x onerror=alert(1)>.yaml", refused + "spec: {hosts: [1]}\n");
    attacked.is_well().await;
    let node = Node {
        id: format!("sidecar~10.0.0.3~{SCRIPT}\"'.shop~shop.svc.cluster.local"),
        metadata: json_to_struct(&json!({"ISTIO_VERSION": SCRIPT, "CLUSTER_ID": SCRIPT, "LABELS": {"app": SCRIPT}})),
        ..Node::default()
    };
    let client = AdsClient::connect(attacked.address, "10.0.0.3").await.unwrap().with_node(node);
    let mut stream = client.sotw(None).await.unwrap();
    stream.subscribe(Cluster, &[], "").await.unwrap();
    let response = stream.next().await.unwrap();
    let mut refusal = request(Cluster, Vec::new(), &response.nonce);
    refusal.error_detail = Some(google::rpc::Status { code: 3, message: SCRIPT.into(), details: Vec::new() });
    stream.send(refusal).await.unwrap();
    let http = attacked.http;
    let start = std::time::Instant::now();
    for page in ["fleet?state=refused", "sources"] {
        loop {
            let answer = ask(http, &format!("GET /dashboard/api/{page}")).await;
            assert!(answer.head.contains("content-type: application/json"), "{page}: {}", answer.head);
            // The node, its refusal, the refused document: as data.
            if answer.body.contains(SCRIPT) {
                break;
            }
            assert!(start.elapsed() < crate::stage::DEADLINE, "{page}: {}", answer.body);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let shell = ask(http, "GET /").await;
    assert!(shell.head.contains("text/html") && shell.head.contains("script-src 'self'"), "{}", shell.head);
    assert!(!shell.body.contains("alert") && shell.body.matches("<script").count() == 1, "{}", shell.body);
    for page in ["/debug", "/debug/%3Cscript%3Ealert(1)%3C%2Fscript%3E", "/debug/config_dump?proxyID=%3Cscript%3E"] {
        let answer = ask(http, &format!("GET {page}")).await;
        let is_html = answer.head.contains("text/html");
        assert!(answer.head.contains("nosniff"), "{page}: {}", answer.head);
        assert!(
            !is_html || !answer.body.contains("<script") && !answer.body.contains("<img"),
            "{page}: {}",
            answer.body
        );
    }
    for page in ["adsz", "connections", "syncz", "sourcez", "push_status"] {
        let answer = ask(http, &format!("GET /debug/{page}")).await;
        assert!(answer.head.contains("application/json") && answer.head.contains("nosniff"), "{page}: {}", answer.head);
        serde_json::from_str::<Value>(&answer.body).unwrap();
    }
}

/// No page shows a key, whether nobody has it or a proxy was sent it.
#[tokio::test]
async fn no_page_shows_a_key() {
    let mut attacked = Attacked::plain().await;
    let own = rcgen::generate_simple_self_signed(vec!["a.example".to_string()]).unwrap();
    let (certificate, key) = (own.cert.pem(), own.signing_key.serialize_pem());
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "own", "namespace": "edge"},
        "stringData": {"tls.crt": certificate, "tls.key": key}});
    attacked.write("secret.yaml", secret.to_string());
    attacked.is_well().await;
    let mut stream = attacked.stream().await;
    stream.subscribe(Secret, &["kubernetes://own"], "").await.unwrap();
    let secrets = stream.next().await.unwrap();
    let middle = key.lines().nth(1).unwrap().to_string();
    assert!(secrets.resources.iter().any(|any| String::from_utf8_lossy(&any.value).contains(&middle)), "it is sent");
    stream.subscribe(Secret, &["kubernetes://own"], &secrets.nonce).await.unwrap();
    // As a dump of Envoy would write it.
    let encoded = DataSource { specifier: Some(Specifier::InlineBytes(key.clone().into())), ..DataSource::default() };
    let encoded = to_json(&encoded).unwrap()["inlineBytes"].as_str().unwrap()[40..100].to_string();
    let list = ask(attacked.http, "GET /debug/list").await.body;
    let mut pages: Vec<String> = serde_json::from_str(&list).unwrap();
    assert!(pages.len() > 15, "{list}");
    pages.extend(["/".into(), "/metrics".into(), "/debug/config_dump?proxyID=gateway.edge".into()]);
    let mut names = 0;
    for page in pages {
        let answer = ask(attacked.http, &format!("GET {page}")).await;
        names += usize::from(answer.status == 200 && answer.body.contains("own"));
        assert!(!answer.body.contains(&middle) && !answer.body.contains(&encoded), "{page} shows the key");
        assert!(!answer.body.contains("PRIVATE KEY"), "{page} shows the key");
    }
    assert!(names >= 2, "the secret is among the objects and in the dump of its proxy");
    assert_eq!(
        attacked.server.lines_with(&middle) + attacked.server.lines_with("PRIVATE KEY"),
        0,
        "the log has the key"
    );
}
