//! The dashboard's answers over HTTP: true, bounded, guarded, live. A browser drives its page in the tests of the clients.

use std::{fs, net::SocketAddr, path::Path, time::Duration};

use pilothouse::{sources::SourceState, testing::AdsClient, xds::ResourceType::Cluster};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::{
    attacks::{Answer, ask},
    stage::{DEADLINE, end, entry, start, until},
};

async fn page(http: SocketAddr, path: &str) -> Value {
    let answer = ask(http, &format!("GET /dashboard/api/{path}")).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

async fn until_page(http: SocketAddr, path: &str, says: impl Fn(&Value) -> bool) -> Value {
    let wait = async {
        loop {
            let value = page(http, path).await;
            if says(&value) {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, wait).await.unwrap_or_else(|_| panic!("{path} does not come to say it"))
}

#[actix::test]
async fn the_page_is_whole_and_loads_nothing_from_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let running = start(&[dir.path()], None).await;
    let http = running.addresses.http;
    let shell = ask(http, "GET /").await;
    assert!(shell.status == 200 && shell.head.contains("content-type: text/html"), "{}", shell.head);
    let policy = "content-security-policy: default-src 'none'; script-src 'self'";
    assert!(shell.head.contains(policy) && shell.head.contains("x-frame-options: deny"), "{}", shell.head);
    let assets: Vec<&str> = shell.body.split('"').filter(|text| text.starts_with("/dashboard/assets/")).collect();
    assert_eq!(assets.len(), 3, "{assets:?}");
    for asset in assets {
        let answer = ask(http, &format!("GET {asset}")).await;
        assert_eq!(answer.status, 200, "{asset}");
        let tag = answer.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_string();
        let again = ask(http, &format!("GET {asset}\nIf-None-Match: {tag}")).await;
        assert_eq!((again.status, again.body.as_str()), (304, ""), "{asset}");
    }
    assert_eq!(ask(http, "GET /dashboard/assets/../../etc/passwd").await.status, 404);
    let unknown = ask(http, "GET /dashboard/api/nothing").await;
    assert!(unknown.status == 404 && unknown.body.contains("nothing"), "{}", unknown.body);
    for path in ["/", "/dashboard/api/fleet", "/dashboard/events", "/dashboard/assets/app.js"] {
        assert_eq!(ask(http, &format!("GET {path}\nHost: evil.example")).await.status, 403, "{path}");
    }
    end(running).await;
}

#[actix::test]
async fn lists_are_cut_and_every_view_answers() {
    let dir = tempfile::tempdir().unwrap();
    let all: String = (0..120).map(|n| entry(&format!("e{n:03}"), &format!("host-{n:03}.example"))).collect();
    fs::write(dir.path().join("a.yaml"), all).unwrap();
    let running = start(&[dir.path()], None).await;
    let http = running.addresses.http;
    until(&running, |c| c.inputs.registry.services.len() == 120).await;
    for (path, total) in [("services", 120), ("objects", 120), ("services?q=host-01", 10), ("services?page=99", 120)] {
        let list = page(http, path).await;
        assert_eq!(list["total"], total, "{path}");
        assert!(list["rows"].as_array().unwrap().len() <= 50, "{path}");
    }
    assert_eq!(page(http, "services?page=3").await["rows"][0]["host"], "host-100.example");
    for path in ["overview", "fleet", "pushes", "sources", "analysis", "graph", "callers?host=host-001.example"] {
        assert!(page(http, path).await.is_object(), "{path}");
    }
    assert_eq!(page(http, "graph").await["tooLarge"], 120);
    let one = page(http, "object?kind=ServiceEntry&namespace=shop&name=e001").await;
    assert!(one["text"]["text"].as_str().unwrap().contains("host-001.example"), "{one}");
    let file = dir.path().join("a.yaml").display().to_string();
    assert_eq!(one["place"], format!("{file}:{}", 1 + one["text"]["first"].as_u64().unwrap() - 1));
    for missing in ["object?kind=Gateway&name=x", "service?host=x", "proxy?id=x", "resources?id=x&type=cds"] {
        assert_eq!(ask(http, &format!("GET /dashboard/api/{missing}")).await.status, 404, "{missing}");
    }
    end(running).await;
}

#[actix::test]
async fn a_refusal_is_traced_to_its_object_and_the_last_ack_is_of_clients_that_were_sent_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), format!("# about\n{}", entry("a", "a.example"))).unwrap();
    let running = start(&[dir.path()], None).await;
    let (http, grpc) = (running.addresses.http, running.addresses.grpc);
    until(&running, |c| c.inputs.registry.services.len() == 1).await;
    let client = AdsClient::connect(grpc, "10.0.0.1").await.unwrap();
    let mut refuses = client.sotw(None).await.unwrap();
    refuses.subscribe(Cluster, &[], "").await.unwrap();
    let response = refuses.next().await.unwrap();
    let push = until_page(http, "pushes", |p| p["pushes"][0]["version"].as_u64().is_some()).await;
    assert_eq!((&push["pushes"][0]["acked"], &push["percentiles"]["pushes"]), (&0.into(), &0.into()));
    refuses
        .send(pilothouse::proto::envoy::service::discovery::v3::DiscoveryRequest {
            type_url: Cluster.url().to_string(),
            response_nonce: response.nonce,
            error_detail: Some(pilothouse::proto::google::rpc::Status {
                code: 3,
                message: "cluster outbound|80||a.example: no good".to_string(),
                ..Default::default()
            }),
            ..Default::default()
        })
        .await
        .unwrap();
    let fleet = until_page(http, "fleet", |fleet| fleet["counts"]["refused"] == 1).await;
    let refusal = &fleet["rows"][0]["refusals"][0];
    assert_eq!(refusal["resource"], "outbound|80||a.example", "{fleet}");
    assert_eq!((&refusal["object"]["kind"], &refusal["object"]["name"]), (&"ServiceEntry".into(), &"a".into()));
    let place = refusal["object"]["place"].as_str().unwrap();
    assert!(place.ends_with("a.yaml:2") || place.ends_with("a.yaml:3"), "{place}");
    assert_eq!(page(http, "overview").await["refused"], 1);
    let object = page(http, "object?kind=ServiceEntry&namespace=shop&name=a").await;
    assert!(object["problems"].to_string().contains("no good"), "{object}");

    // A client that comes later acknowledges, and the push before it stays without an acknowledgement.
    let mut later = client.sotw(None).await.unwrap();
    later.subscribe(Cluster, &[], "").await.unwrap();
    let response = later.next().await.unwrap();
    later.subscribe(Cluster, &[], &response.nonce).await.unwrap();
    until_page(http, "fleet", |fleet| fleet["counts"]["in sync"] == 1).await;
    let pushes = page(http, "pushes").await;
    assert_eq!((&pushes["pushes"][0]["acked"], &pushes["pushes"][0]["ack_ms"]), (&0.into(), &Value::Null));
    // The next one is sent to it, and has its stages.
    fs::write(dir.path().join("b.yaml"), entry("b", "b.example")).unwrap();
    let response = later.next().await.unwrap();
    later.subscribe(Cluster, &[], &response.nonce).await.unwrap();
    let pushes = until_page(http, "pushes", |p| p["pushes"][0]["acked"] == 1).await;
    let push = &pushes["pushes"][0];
    let times =
        ["debounced_ms", "build_began_ms", "build_ended_ms"].map(|stage| push["stages"][stage].as_f64().unwrap());
    let last = [push["published_ms"].as_f64().unwrap(), push["last_ack_ms"].as_f64().unwrap()];
    assert!(times.iter().chain(&last).is_sorted(), "{push}");
    assert!(push["ack_ms"]["p99"].as_f64().unwrap() >= last[1] && pushes["percentiles"]["pushes"] == 1, "{push}");
    end(running).await;
}

/// The statuses of requests that try to confirm the deletion of a source.
async fn confirm(http: SocketAddr, folder: &Path, headers: &str) -> Answer {
    let source = format!("file:{}", folder.display());
    ask(http, &format!("POST /dashboard/api/confirm?source={source}{headers}")).await
}

#[actix::test]
async fn a_held_deletion_is_confirmed_by_the_dashboard_and_by_no_other_page() {
    let dir = tempfile::tempdir().unwrap();
    let all: String = (0..20).map(|n| entry(&format!("e{n}"), &format!("host-{n}.example"))).collect();
    let path = dir.path().join("a.yaml");
    fs::write(&path, &all).unwrap();
    let running = start(&[dir.path()], None).await;
    let (http, board) = (running.addresses.http, running.sources[0].board.clone());
    until(&running, |c| c.inputs.registry.services.len() == 20).await;
    fs::write(&path, entry("e0", "host-0.example")).unwrap();
    tokio::time::timeout(DEADLINE, board.until(|r| r.state == SourceState::Holding)).await.unwrap();
    let own = "\nX-Pilothouse-Dashboard: 1";
    let shown = ask(http, &format!("GET /dashboard/api/sources\nSec-Fetch-Site: same-origin{own}\nHost: {http}")).await;
    let shown: Value = serde_json::from_str(&shown.body).unwrap();
    assert_eq!((&shown["mayConfirm"], &shown["sources"][0]["counts"]["held_deletions"]), (&true.into(), &19.into()));

    for headers in [
        format!("\nHost: {http}\nOrigin: http://{http}\nSec-Fetch-Site: same-origin"),
        format!("\nHost: {http}\nOrigin: http://evil.example\nSec-Fetch-Site: cross-site{own}"),
        format!("\nHost: {http}\nOrigin: http://127.0.0.1:1\nSec-Fetch-Site: same-site{own}"),
        format!("\nHost: evil.example\nOrigin: http://evil.example\nSec-Fetch-Site: same-origin{own}"),
    ] {
        assert_eq!(confirm(http, dir.path(), &headers).await.status, 403, "{headers}");
    }
    let preflight =
        ask(http, &format!("OPTIONS /dashboard/api/confirm\nHost: {http}\nOrigin: http://evil.example")).await;
    assert!(preflight.status >= 400 && !preflight.head.contains("access-control"), "{}", preflight.head);
    assert_eq!(running.registry.snapshot().services.len(), 20);
    let done =
        confirm(http, dir.path(), &format!("\nHost: {http}\nOrigin: http://{http}\nSec-Fetch-Site: same-origin{own}"))
            .await;
    assert!(done.status == 200 && done.body.starts_with("19 objects"), "{}", done.body);
    until(&running, |c| c.inputs.registry.services.len() == 1).await;
    end(running).await;
}

/// A stream of notices.
struct Events(BufReader<TcpStream>);

impl Events {
    async fn open(http: SocketAddr) -> Self {
        let mut socket = TcpStream::connect(http).await.unwrap();
        socket.write_all(format!("GET /dashboard/events HTTP/1.1\r\nHost: {http}\r\n\r\n").as_bytes()).await.unwrap();
        Self(BufReader::new(socket))
    }

    /// The next notice; `None` when the stream ends.
    async fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = async {
            loop {
                line.clear();
                if self.0.read_line(&mut line).await.unwrap_or_default() == 0 {
                    return None;
                }
                if let Some(data) = line.strip_prefix("data: ") {
                    return serde_json::from_str(data).ok();
                }
            }
        };
        tokio::time::timeout(DEADLINE, read).await.expect("a notice")
    }
}

#[actix::test]
async fn a_change_is_told_once_to_every_page_and_streams_end_with_the_server() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let running = start(&[dir.path()], None).await;
    let http = running.addresses.http;
    until(&running, |c| c.inputs.registry.services.len() == 1).await;
    let mut pages = [Events::open(http).await, Events::open(http).await];
    let mut first = pages[0].next().await.unwrap();
    let mut other = pages[1].next().await.unwrap();
    fs::write(dir.path().join("b.yaml"), entry("b", "b.example")).unwrap();
    until(&running, |c| c.inputs.registry.services.len() == 2).await;
    let push = running.state.current().unwrap().version;
    let of_page = |v: &Value| format!("overview?v={}", v["v"]);
    // A notice that comes after the change has an answer that holds it.
    let changed = async {
        loop {
            let notice = pages[0].next().await.unwrap();
            assert!(notice["v"].as_u64() > first["v"].as_u64());
            let is_new = notice["config"] != first["config"];
            first = notice;
            if is_new && page(http, &of_page(&first)).await["push"].as_u64() >= Some(push) {
                return;
            }
        }
    };
    tokio::time::timeout(DEADLINE, changed).await.expect("a notice of the change");
    // The other page may have begun with that notice.
    while other["v"].as_u64() < first["v"].as_u64() {
        other = pages[1].next().await.unwrap();
    }
    assert_eq!(page(http, &of_page(&first)).await, page(http, &of_page(&first)).await, "one answer is shared");

    let mut many = Vec::new();
    for _ in 0..62 {
        let mut events = Events::open(http).await;
        assert!(events.next().await.is_some());
        many.push(events);
    }
    assert_eq!(ask(http, "GET /dashboard/events").await.status, 503, "streams are bounded");
    drop(many);
    running.shutdown.begin();
    while pages[0].next().await.is_some() {}
    tokio::time::timeout(DEADLINE, running.wait()).await.unwrap().unwrap();
}
