//! The log under attack: a pipe without a reader stops nothing, text from outside forges no line, and a flood of one
//! message is a few lines and a count.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::Write as _,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use pilothouse::{
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
        },
        google,
    },
    testing::{AdsClient, SotwStream},
    xds::ResourceType,
};
use serde_json::{Value, json};

use crate::{
    binary::Binary,
    confirm::ask,
    ports::free_port,
    proxy::Proxies,
    registration::node,
    stage::{DEADLINE, entry},
};

const FORGED: &str = "no\n2026-01-01T00:00:00Z ERROR pilothouse: forged\u{1b}[2J\u{9b}31m\u{2028}end";

fn free_address() -> SocketAddr {
    ([127, 0, 0, 1], free_port()).into()
}

/// Kills the child when the test ends early.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server whose standard output and standard error are one pipe that is full and has no reader.
fn unread(folder: &Path, grpc: SocketAddr, http: SocketAddr) -> (Killed, std::io::PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let (mut filler, written) = (writer.try_clone().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = written.clone();
    thread::spawn(move || {
        while filler.write_all(b"full\n").is_ok() {
            counted.fetch_add(5, Ordering::Relaxed);
        }
    });
    while written.load(Ordering::Relaxed) < 4096 {
        thread::yield_now();
    }
    let child = Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .args(["serve", "--monitoring-addr", "", "--log-level", "debug,kube=off", "--config-dir"])
        .arg(folder)
        .args(["--grpc-addr", &grpc.to_string(), "--http-addr", &http.to_string()])
        .stdin(Stdio::null())
        .stdout(writer.try_clone().unwrap())
        .stderr(writer)
        .spawn()
        .unwrap();
    (Killed(child), reader)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_without_a_reader_stops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let mut bad = String::new();
    for number in 0..300 {
        let _ = write!(bad, "---\nkind: Nothing{number}\n");
    }
    fs::write(dir.path().join("bad.yaml"), bad).unwrap();
    let (grpc, http) = (free_address(), free_address());
    let (mut server, reader) = unread(dir.path(), grpc, http);
    let connected = async {
        loop {
            if let Ok(client) = AdsClient::connect(grpc, "10.0.0.6").await
                && let Ok(mut stream) = client.sotw(None).await
                && stream.subscribe(ResourceType::Cluster, &[], "").await.is_ok()
                && stream.next().await.is_ok()
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, connected).await.expect("the server does not serve");
    let mut proxies = Proxies::connect(grpc).await;
    proxies.until("a.example").await;
    fs::write(dir.path().join("b.yaml"), entry("b", "b.example")).unwrap();
    proxies.until("b.example").await;
    let metrics = tokio::task::spawn_blocking(move || ask(http, "GET /metrics HTTP/1.0")).await.unwrap();
    assert!(metrics.contains("pilothouse_log_lines_dropped"), "{metrics}");

    let sent = Command::new("kill").args(["-TERM", &server.0.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let ended = tokio::task::spawn_blocking(move || {
        let began = std::time::Instant::now();
        while began.elapsed() < DEADLINE {
            if let Some(status) = server.0.try_wait().unwrap() {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(10));
        }
        None
    });
    let status = ended.await.unwrap().expect("SIGTERM has no effect");
    assert_eq!(status.code(), Some(0));
    drop(reader);
}

async fn first_answer(grpc: SocketAddr) -> (SotwStream, DiscoveryResponse) {
    let start = std::time::Instant::now();
    loop {
        if let Ok(client) = AdsClient::connect(grpc, "10.0.0.6").await
            && let Ok(mut stream) = client.sotw(None).await
            && stream.subscribe(ResourceType::Cluster, &[], "").await.is_ok()
            && let Ok(response) = stream.next().await
        {
            return (stream, response);
        }
        assert!(start.elapsed() < DEADLINE, "not ready");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn refusal(response: &DiscoveryResponse, message: &str) -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: response.type_url.clone(),
        response_nonce: response.nonce.clone(),
        error_detail: Some(google::rpc::Status { code: 3, message: message.to_string(), details: Vec::new() }),
        ..DiscoveryRequest::default()
    }
}

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    dir
}

/// The attempt to forge a line by text of this kind.
fn forged(by: &str) -> String {
    FORGED.replace("forged", &format!("forged-by-{by}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn text_from_outside_forges_no_line_of_a_text_log() {
    let (dir, grpc) = (folder(), free_address());
    let (grpc_addr, ports) = (grpc.to_string(), "127.0.0.1:0");
    fs::write(dir.path().join("new\n\u{1b}[2Jforged-by-a-file.yaml"), "kind: [\n").unwrap();
    let object = |name: &str, spec: Value| {
        let metadata = json!({"name": name, "namespace": "shop"});
        json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": metadata, "spec": spec})
    };
    fs::write(dir.path().join("name.yaml"), object(&forged("a-name"), json!({"hosts": [1]})).to_string()).unwrap();
    let value = json!({"hosts": ["a.example"], "resolution": forged("a-value")});
    fs::write(dir.path().join("value.yaml"), object("x", value).to_string()).unwrap();
    let unknown = json!({"hosts": ["b.example"], "resolution": "NONE", forged("a-key"): 1});
    fs::write(dir.path().join("key.yaml"), object("y", unknown).to_string()).unwrap();
    let mut server = Binary::serve_with(dir.path(), &["--grpc-addr", &grpc_addr, "--http-addr", ports], &[]);
    let (mut stream, response) = first_answer(grpc).await;
    stream.send(refusal(&response, &forged("a-refusal"))).await.unwrap();
    let client = AdsClient::connect(grpc, "10.0.0.6").await.unwrap();
    let id = format!("sidecar~10.0.0.7~{}.shop~shop.svc.cluster.local", forged("a-node"));
    let mut other = client.with_node(Node { id, ..Node::default() }).sotw(None).await.unwrap();
    other.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
    let response = other.next().await.unwrap();
    other.send(refusal(&response, "no")).await.unwrap();
    // A name of a group that cannot be one is refused before it comes to a line.
    let machine = node("10.9.0.7", json!({"AUTO_REGISTER_GROUP": forged("a-group")}));
    let mut refused = client.with_node(machine).sotw(None).await.unwrap();
    refused.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
    assert!(refused.next().await.is_err());

    let wanted = ["a-file", "a-name", "a-value", "a-key", "a-refusal", "a-node"];
    let seen = tokio::task::spawn_blocking(move || {
        let seen = RefCell::new(BTreeMap::new());
        server.until("all attempts", |line| {
            assert!(!line.chars().any(|c| c.is_control() || c == '\u{2028}'), "{line:?}");
            assert!(!line.starts_with("2026-01-01T00:00:00Z"), "{line:?}");
            for by in wanted.iter().filter(|by| line.contains(&format!("forged-by-{by}"))) {
                seen.borrow_mut().insert(*by, line.to_string());
            }
            let missing: Vec<_> = wanted.iter().filter(|by| !seen.borrow().contains_key(**by)).collect();
            missing.is_empty().then_some(())
        });
        seen.into_inner()
    });
    let seen = seen.await.unwrap();
    for by in ["a-name", "a-value", "a-key", "a-refusal", "a-node"] {
        let line = &seen[by];
        assert!(line.contains("WARN") && line.contains("\\n2026-01-01"), "{line}");
    }
    assert!(seen["a-refusal"].contains("connection="), "{}", seen["a-refusal"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_log_of_json_the_message_is_ours() {
    let dir = folder();
    let mut server = Binary::serve(dir.path(), &[], &[]);
    let (grpc, _) = server.addresses();
    let (mut stream, response) = first_answer(grpc).await;
    stream.send(refusal(&response, FORGED)).await.unwrap();
    let line = server.until("refusal", |line| line.contains("forged").then(|| line.to_string()));
    assert_eq!(line.matches("\"message\":").count(), 1, "{line}");
    let parsed: Value = serde_json::from_str(&line).unwrap();
    let said = parsed["message"].as_str().unwrap();
    assert!(said.starts_with("a client refused"), "{line}");
    let theirs = parsed.as_object().unwrap().values().filter(|v| *v == FORGED).count();
    assert_eq!(theirs, 1, "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_one_message_is_a_few_lines_and_a_count() {
    const REFUSALS: u64 = 400;
    let dir = folder();
    let mut server = Binary::serve(dir.path(), &[], &[]);
    let (grpc, _) = server.addresses();
    let _served = first_answer(grpc).await;
    let client = AdsClient::connect(grpc, "10.0.0.6").await.unwrap();
    let stranger = node("10.9.0.7", json!({"AUTO_REGISTER_GROUP": "x".repeat(20_000)}));
    for _ in 0..REFUSALS / 20 {
        let refused = (0..20).map(|_| async {
            let mut stream = client.with_node(stranger.clone()).sotw(None).await.unwrap();
            stream.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
            assert!(stream.next().await.is_err());
        });
        futures::future::join_all(refused).await;
    }
    let (mut lines, mut left_out) = (0, 0);
    while lines + left_out < REFUSALS {
        let (line, suppressed) = server.until("count", |line| {
            assert!(line.len() < 16_000, "a line of {} bytes", line.len());
            let parsed: Value = serde_json::from_str(line).ok()?;
            let of_flood = parsed["target"] == "pilothouse::registration::actor";
            of_flood.then(|| (parsed["message"].to_string(), parsed["suppressed"].as_u64()))
        });
        match suppressed {
            Some(count) => left_out += count,
            None if line.contains("may not register") => lines += 1,
            None => {}
        }
    }
    assert_eq!(lines + left_out, REFUSALS);
    assert!(left_out > 0, "{lines} lines");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_refused_files_do_not_label_metrics_without_bound() {
    let dir = folder();
    for number in 0..1500 {
        let bad = entry(&format!("bad-{number}"), "bad.example").replace("number: 80", "number: 99999");
        fs::write(dir.path().join(format!("bad-{number}.yaml")), bad).unwrap();
    }
    let mut server = Binary::serve(dir.path(), &[], &[]);
    let (grpc, http) = server.addresses();
    let _held = first_answer(grpc).await;
    let metrics = tokio::task::spawn_blocking(move || ask(http, "GET /metrics HTTP/1.0")).await.unwrap();
    let series = metrics.lines().filter(|l| l.starts_with("pilot_total_rejected_configs{"));
    let counts: Vec<u64> = series.map(|l| l.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(counts.iter().sum::<u64>(), 1500, "every refusal is counted");
    assert!(counts.len() < 400, "{} series", counts.len());
}
