//! A start at which the source cannot be reached: the last good content is served, marked as old, and replaced when the
//! source is back. A file that is damaged is refused.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use pilothouse::{
    app::{self, Running},
    model::{Kind, Origin, decode::from_value, mcp},
    proto::{
        envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
        to_any,
        wkt::Any,
    },
    runtime::Shutdown,
    settings::Settings,
    sources::SourceState,
    store::last_good::Folder,
    testing::{ScriptedStream, ScriptedUpstream},
};
use serde_json::json;

use crate::{
    confirm::{aside, ask},
    stage::{DEADLINE, end, entry, hosts, restarted, settings, start, until},
};

fn downstream(upstream: SocketAddr, state: &Path) -> Settings {
    let mut settings = settings(&[], None);
    settings.sources.upstream.addresses = vec![upstream.to_string()];
    settings.sources.upstream.first_pause = Duration::from_millis(20);
    settings.state.folder = Some(state.to_path_buf());
    settings.state.grace = Duration::from_millis(200);
    settings.state.quiet = Duration::from_millis(20);
    settings
}

async fn run(settings: Settings) -> Running {
    app::build(settings, Shutdown::default()).await.unwrap()
}

const SECRET: &str =
    "---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n  namespace: shop\ndata:\n  key: aHVzaA==\n";

#[actix::test]
async fn old_content_is_served_until_the_source_is_back() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example") + &entry("b", "b.example")).unwrap();
    let upstream = start(&[dir.path()], None).await;
    let address = upstream.addresses.grpc;
    let first = run(downstream(address, state.path())).await;
    until(&first, |c| hosts(c).len() == 2).await;
    end(first).await;
    end(upstream).await;

    let alone = run(downstream(address, state.path())).await;
    until(&alone, |c| hosts(c) == ["a.example", "b.example"] && alone.readiness.is_ready()).await;
    let report = alone.sources[0].board.read();
    assert_eq!((report.state, report.objects), (SourceState::Stale, 2));
    assert!(report.saved_at.is_some());

    fs::write(dir.path().join("a.yaml"), entry("a", "a.example") + &entry("c", "c.example")).unwrap();
    let mut again = settings(&[dir.path()], None);
    again.xds.grpc_address = address.into();
    let upstream = run(again).await;
    until(&alone, |c| hosts(c) == ["a.example", "c.example"]).await;
    let board = alone.sources[0].board.clone();
    let synced = board.until(|r| r.state == SourceState::Synced && r.saved_at.is_none());
    tokio::time::timeout(DEADLINE, synced).await.unwrap();
    end(alone).await;
    end(upstream).await;
}

#[actix::test]
async fn a_folder_that_is_gone_at_the_start_is_waited_for_and_its_old_content_served() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = dir.path().join("mesh");
    let kept = || {
        let mut kept = settings(&[&folder], None);
        (kept.state.folder, kept.state.grace) = (Some(state.path().to_path_buf()), Duration::from_millis(200));
        kept.state.quiet = Duration::from_millis(20);
        kept
    };
    let nothing = run(kept()).await;
    let looked = nothing.sources[0].board.clone();
    tokio::time::timeout(DEADLINE, looked.until(|r| r.last_error.contains("is gone"))).await.unwrap();
    assert!(nothing.state.current().is_none() && !nothing.readiness.is_ready(), "nothing is known of the folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a.yaml"), entry("a", "a.example")).unwrap();
    until(&nothing, |c| hosts(c) == ["a.example"] && nothing.readiness.is_ready()).await;
    end(nothing).await;

    fs::rename(&folder, dir.path().join("aside")).unwrap();
    let old = run(kept()).await;
    until(&old, |c| hosts(c) == ["a.example"] && old.readiness.is_ready()).await;
    let report = old.sources[0].board.read();
    assert_eq!((report.state, report.objects, report.saved_at.is_some()), (SourceState::Stale, 1, true));
    assert!(report.last_error.contains("is gone"), "{}", report.last_error);
    fs::rename(dir.path().join("aside"), &folder).unwrap();
    fs::write(folder.join("b.yaml"), entry("b", "b.example")).unwrap();
    until(&old, |c| hosts(c) == ["a.example", "b.example"]).await;
    let board = old.sources[0].board.clone();
    let synced = board.until(|r| r.state == SourceState::Synced && r.saved_at.is_none() && r.objects == 2);
    tokio::time::timeout(DEADLINE, synced).await.unwrap();
    end(old).await;
}

#[actix::test]
async fn old_content_outlives_a_fault_of_the_store() {
    let (dir, local, state) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let upstream = start(&[dir.path()], None).await;
    let mut both = downstream(upstream.addresses.grpc, state.path());
    both.sources.config_dirs = vec![local.path().to_path_buf()];
    let first = run(both.clone()).await;
    until(&first, |c| hosts(c) == ["a.example"]).await;
    end(first).await;
    end(upstream).await;

    let alone = run(both).await;
    until(&alone, |c| hosts(c) == ["a.example"]).await;
    alone.supervision.faults().order("aggregate-cache", 1);
    fs::write(local.path().join("b.yaml"), entry("b", "b.example")).unwrap();
    restarted(&alone, "aggregate-cache", 1).await;
    until(&alone, |c| hosts(c) == ["a.example", "b.example"]).await;
    end(alone).await;
}

type Script = ScriptedUpstream<DiscoveryRequest, DiscoveryResponse>;
type Stream = ScriptedStream<DiscoveryRequest, DiscoveryResponse>;

const ENTRIES: &str = "networking.istio.io/v1/ServiceEntry";
const SIDECARS: &str = "networking.istio.io/v1/Sidecar";

fn resource(document: serde_json::Value) -> Any {
    to_any(&mcp::to_resource(&from_value(&document, Origin::default()).unwrap()).unwrap())
}

fn sidecar() -> Any {
    resource(json!({"apiVersion": "networking.istio.io/v1", "kind": "Sidecar",
        "metadata": {"name": "s", "namespace": "shop"}, "spec": {"egress": [{"hosts": ["*/*"]}]}}))
}

fn of_host(host: &str) -> Any {
    of_hosts(&[host])
}

fn of_hosts(hosts: &[&str]) -> Any {
    let ports = json!([{"number": 80, "name": "http", "protocol": "HTTP"}]);
    resource(json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": "e", "namespace": "shop"}, "spec": {"hosts": hosts, "ports": ports, "resolution": "DNS"}}))
}

/// Answers these types on a stream, each as soon as it is asked for, and gives the stream.
async fn answer(upstream: &mut Script, mut open: BTreeMap<String, Vec<Any>>) -> Stream {
    let mut stream = upstream.accept().await.unwrap();
    while !open.is_empty() {
        let request = stream.next().await.unwrap();
        let Some(resources) = open.remove(&request.type_url) else { continue };
        let (type_url, nonce) = (request.type_url, "n".to_string());
        stream
            .say(DiscoveryResponse { version_info: "1".into(), nonce, type_url, resources, ..Default::default() })
            .await;
    }
    stream
}

/// Answers every type: this ServiceEntry, a Sidecar, and nothing else.
async fn answer_all(upstream: &mut Script, entry: Any) -> Stream {
    let urls = Kind::ALL.iter().filter(|k| mcp::is_carried(**k)).filter_map(|k| mcp::type_urls(*k).next());
    let mut all: BTreeMap<String, Vec<Any>> = urls.map(|url| (url, Vec::new())).collect();
    all.insert(ENTRIES.to_string(), vec![entry]);
    all.insert(SIDECARS.to_string(), vec![sidecar()]);
    answer(upstream, all).await
}

fn sidecars(running: &Running) -> usize {
    running.store.snapshot().list(Kind::Sidecar).len()
}

fn saved(state: &Path) -> String {
    let file = fs::read_dir(state).unwrap().next().unwrap().unwrap().path();
    fs::read_to_string(file).unwrap()
}

#[actix::test]
async fn an_upstream_that_answers_half_and_goes_neither_ends_saved_content_nor_overwrites_it() {
    let state = tempfile::tempdir().unwrap();
    let mut upstream = Script::start(None).await.unwrap();
    let mut kept = downstream(upstream.address, state.path());
    kept.sources.upstream.last_answer = Duration::from_millis(100);
    let first = run(kept.clone()).await;
    let stream = answer_all(&mut upstream, of_host("good.example")).await;
    until(&first, |c| hosts(c) == ["good.example"]).await;
    end(first).await;
    drop(stream);

    let second = run(kept).await;
    let half = || BTreeMap::from([(ENTRIES.to_string(), vec![of_host("half.example")])]);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        drop(answer(&mut upstream, half()).await);
    }
    until(&second, |c| hosts(c) == ["good.example"] && second.readiness.is_ready()).await;
    assert_eq!((sidecars(&second), second.sources[0].board.read().state), (1, SourceState::Stale));
    end(second).await;
    assert!(saved(state.path()).contains("good.example") && !saved(state.path()).contains("half.example"));
}

#[actix::test]
async fn kinds_that_an_upstream_does_not_answer_keep_their_saved_objects() {
    let state = tempfile::tempdir().unwrap();
    let mut upstream = Script::start(None).await.unwrap();
    let mut kept = downstream(upstream.address, state.path());
    kept.sources.upstream.last_answer = Duration::from_millis(100);
    // Saved content is not in force before the upstream delivers: it is read then.
    kept.state.grace = DEADLINE;
    let first = run(kept.clone()).await;
    let stream = answer_all(&mut upstream, of_host("old.example")).await;
    until(&first, |c| hosts(c) == ["old.example"]).await;
    end(first).await;
    drop(stream);

    let second = run(kept.clone()).await;
    let half = BTreeMap::from([(ENTRIES.to_string(), vec![of_host("new.example")])]);
    let stream = answer(&mut upstream, half).await;
    until(&second, |c| hosts(c) == ["new.example"]).await;
    assert_eq!(sidecars(&second), 1);
    end(second).await;
    drop(stream);
    assert!(saved(state.path()).contains("new.example") && saved(state.path()).contains("Sidecar"));

    // An answer for the kind ends the use of its saved objects.
    let third = run(kept).await;
    let half = BTreeMap::from([(ENTRIES.to_string(), vec![of_host("new.example")])]);
    let stream = answer(&mut upstream, half).await;
    until(&third, |c| hosts(c) == ["new.example"]).await;
    assert_eq!(sidecars(&third), 1);
    let (type_url, nonce) = (SIDECARS.to_string(), "late".to_string());
    stream.say(DiscoveryResponse { version_info: "2".into(), nonce, type_url, ..Default::default() }).await;
    until(&third, |_| sidecars(&third) == 0).await;
    end(third).await;
}

#[actix::test]
async fn a_resource_that_is_refused_from_the_beginning_has_its_saved_version() {
    let state = tempfile::tempdir().unwrap();
    let mut upstream = Script::start(None).await.unwrap();
    let kept = downstream(upstream.address, state.path());
    let first = run(kept.clone()).await;
    let stream = answer_all(&mut upstream, of_host("good.example")).await;
    until(&first, |c| hosts(c) == ["good.example"]).await;
    end(first).await;
    drop(stream);

    let second = run(kept).await;
    let stream = answer_all(&mut upstream, of_hosts(&[])).await;
    until(&second, |c| hosts(c) == ["good.example"] && second.readiness.is_ready()).await;
    let board = second.sources[0].board.clone();
    let kept = board.until(|r| r.state == SourceState::Synced && r.kept == ["ServiceEntry/shop/e"]);
    tokio::time::timeout(DEADLINE, kept).await.unwrap();
    assert_eq!(board.read().findings.refused.len(), 1);
    let (type_url, nonce, resources) = (ENTRIES.to_string(), "later".to_string(), vec![of_host("new.example")]);
    stream.say(DiscoveryResponse { version_info: "2".into(), nonce, type_url, resources, ..Default::default() }).await;
    until(&second, |c| hosts(c) == ["new.example"]).await;
    let none = board.until(|r| r.kept.is_empty() && r.findings.refused.is_empty());
    tokio::time::timeout(DEADLINE, none).await.unwrap();
    end(second).await;
}

#[actix::test]
async fn documents_that_are_refused_from_the_beginning_have_their_saved_version() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = |name: &str| dir.path().join(format!("{name}.yaml"));
    for name in ["a", "b", "c"] {
        fs::write(file(name), entry(name, &format!("{name}.example"))).unwrap();
    }
    let mut kept = settings(&[dir.path()], None);
    (kept.state.folder, kept.state.quiet) = (Some(state.path().to_path_buf()), Duration::from_millis(20));
    let first = run(kept.clone()).await;
    until(&first, |c| hosts(c).len() == 3).await;
    end(first).await;

    let refused = entry("a", "a.example").replace("resolution: STATIC", "resolution: SOMEHOW");
    fs::write(file("a"), refused).unwrap();
    // Text that is no UTF-8.
    fs::write(file("b"), [0xff, 0xfe, 0xfd]).unwrap();
    fs::remove_file(file("c")).unwrap();
    // What was kept once is saved again.
    for _ in 0..2 {
        let later = run(kept.clone()).await;
        until(&later, |c| hosts(c) == ["a.example", "b.example"] && later.readiness.is_ready()).await;
        let report = later.sources[0].board.read();
        assert_eq!((report.state, report.kept.len(), report.findings.refused.len()), (SourceState::Synced, 2, 2));
        end(later).await;
    }
    let last = run(kept).await;
    until(&last, |c| hosts(c) == ["a.example", "b.example"]).await;
    fs::write(file("a"), entry("a", "other.example")).unwrap();
    fs::remove_file(file("b")).unwrap();
    until(&last, |c| hosts(c) == ["other.example"]).await;
    end(last).await;
}

#[actix::test]
async fn a_save_that_fails_is_tried_again() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let mut kept = settings(&[dir.path()], None);
    (kept.state.folder, kept.state.quiet) = (Some(state.path().to_path_buf()), Duration::from_millis(20));
    let source = format!("file:{}", dir.path().display());
    let file = Folder::open(state.path(), 1 << 20).unwrap().path(&source);
    // No file can be put in the place of a folder that is not empty.
    fs::create_dir_all(file.join("in the way")).unwrap();
    let running = run(kept).await;
    until(&running, |c| hosts(c) == ["a.example"]).await;
    let http = running.addresses.http;
    let failed = async {
        while aside(move || ask(http, "GET /metrics HTTP/1.0"))
            .await
            .contains("\npilothouse_last_good_write_failures 0\n")
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, failed).await.unwrap();
    fs::remove_dir_all(&file).unwrap();
    let saved = async {
        while !file.is_file() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(DEADLINE, saved).await.unwrap();
    assert!(fs::read_to_string(&file).unwrap().contains("a.example"));
    end(running).await;
}

#[actix::test]
async fn a_damaged_file_is_refused_and_left_where_it_is() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let upstream = start(&[dir.path()], None).await;
    let address = upstream.addresses.grpc;
    let first = run(downstream(address, state.path())).await;
    until(&first, |c| hosts(c).len() == 1).await;
    end(first).await;
    end(upstream).await;
    let file = fs::read_dir(state.path()).unwrap().next().unwrap().unwrap().path();
    let bytes = fs::read_to_string(&file).unwrap();
    for (damage, says) in [
        (bytes.replace("a.example", "b.example"), "checksum"),
        (bytes.replacen("last-good 1", "last-good 0", 1), "format 0"),
        (bytes[..bytes.len() / 2].to_string(), "damaged"),
    ] {
        fs::write(&file, &damage).unwrap();
        let alone = run(downstream(address, state.path())).await;
        let board = alone.sources[0].board.clone();
        let refused = board.until(|r| !r.saved_content_refused.is_empty());
        tokio::time::timeout(DEADLINE, refused).await.unwrap();
        let report = board.read();
        assert!(report.saved_content_refused.contains(says), "{}", report.saved_content_refused);
        assert!(alone.state.current().is_none() && !alone.readiness.is_ready(), "nothing of it is served");
        end(alone).await;
        assert_eq!(fs::read_to_string(&file).unwrap(), damage);
    }
}

#[actix::test]
async fn secrets_are_not_written() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example") + SECRET).unwrap();
    let mut kept = settings(&[dir.path()], None);
    kept.state.folder = Some(state.path().join("made"));
    let running = run(kept).await;
    until(&running, |c| hosts(c).len() == 1).await;
    end(running).await;
    let files: Vec<_> = fs::read_dir(state.path().join("made")).unwrap().map(|f| f.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let text = fs::read_to_string(&files[0]).unwrap();
    assert!(text.contains("a.example") && !text.contains("aHVzaA"), "{text}");
}
