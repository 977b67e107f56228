//! The whole process in one: it starts, follows its files, keeps what it has when these break, and ends in good order.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::{fs, path::Path, sync::Arc, time::Duration};

use pilothouse::{
    app::{self, Running},
    push::PushContext,
    runtime::Shutdown,
    settings::{AdminSettings, ListenAddress, MeshSettings, Settings, SourceSettings, XdsSettings},
    testing::AdsClient,
    xds::ResourceType,
};

const DEADLINE: Duration = Duration::from_secs(30);

fn entry(name: &str, host: &str) -> String {
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata:\n  name: {name}\n  namespace: shop\nspec:\n  hosts:\n  - {host}\n  ports:\n  - number: 80\n    name: http\n    protocol: HTTP\n  resolution: STATIC\n  endpoints:\n  - address: 10.0.0.1\n"
    )
}

fn settings(folders: &[&Path], mesh: Option<&Path>) -> Settings {
    Settings {
        sources: SourceSettings {
            config_dirs: folders.iter().map(|p| p.to_path_buf()).collect(),
            ..SourceSettings::default()
        },
        mesh: MeshSettings { config_file: mesh.map(Path::to_path_buf), ..MeshSettings::default() },
        xds: XdsSettings { grpc_address: ListenAddress::loopback(0) },
        admin: AdminSettings {
            http_address: ListenAddress::loopback(0),
            monitoring_address: None,
            ..AdminSettings::default()
        },
        ..Settings::default()
    }
}

async fn start(folders: &[&Path], mesh: Option<&Path>) -> Running {
    app::build(settings(folders, mesh), Shutdown::default()).await.unwrap()
}

/// Waits until the context in force says this.
async fn until(running: &Running, says: impl Fn(&PushContext) -> bool) -> Arc<PushContext> {
    let wait = async {
        loop {
            if let Some(published) = running.state.current().filter(|p| says(&p.context)) {
                return published.context.clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, wait).await.expect("the context does not come to say it")
}

fn hosts(context: &PushContext) -> Vec<String> {
    let mut hosts: Vec<String> = context.inputs.registry.services.iter().map(|s| s.hostname.to_string()).collect();
    hosts.sort();
    hosts
}

async fn end(running: Running) {
    running.shutdown.begin();
    tokio::time::timeout(Duration::from_secs(10), running.wait()).await.unwrap().unwrap();
}

#[actix::test]
async fn objects_of_files_reach_the_context_and_changes_follow() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    fs::write(&path, entry("a", "a.example")).unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| hosts(c) == ["a.example"] && running.readiness.is_ready()).await;
    fs::write(&path, entry("a", "a.example") + &entry("b", "b.example")).unwrap();
    until(&running, |c| hosts(c) == ["a.example", "b.example"]).await;
    fs::write(&path, entry("a", "a.example") + "---\nkind: [\n").unwrap();
    fs::write(dir.path().join("c.yaml"), entry("c", "c.example")).unwrap();
    until(&running, |c| hosts(c) == ["a.example", "b.example", "c.example"]).await;
    assert_eq!(running.sources[0].board.read().findings.refused.len(), 1);
    end(running).await;
}

#[actix::test]
async fn a_mesh_without_objects_is_ready_too() {
    let dir = tempfile::tempdir().unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| hosts(c).is_empty() && running.readiness.is_ready()).await;
    end(running).await;
}

#[actix::test]
async fn the_first_folder_wins() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(first.path().join("a.yaml"), entry("a", "first.example")).unwrap();
    fs::write(second.path().join("a.yaml"), entry("a", "second.example") + &entry("b", "b.example")).unwrap();
    let running = start(&[first.path(), second.path()], None).await;
    let context = until(&running, |_| true).await;
    assert_eq!(hosts(&context), ["b.example", "first.example"]);
    assert_eq!(running.store.shadowed().await.len(), 1);
    end(running).await;
}

#[actix::test]
async fn mesh_settings_are_reloaded_and_bad_ones_are_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let mesh = dir.path().join("mesh.yaml");
    fs::write(&mesh, "rootNamespace: one\n").unwrap();
    let running = start(&[dir.path()], Some(&mesh)).await;
    until(&running, |c| c.mesh().config.root_namespace == "one").await;
    fs::write(&mesh, "rootNamespace: two\n").unwrap();
    until(&running, |c| c.mesh().config.root_namespace == "two").await;
    fs::write(&mesh, "rootNamespace: [\n").unwrap();
    let board = &running.sources[1].board;
    tokio::time::timeout(DEADLINE, board.until(|r| r.last_error.contains("mesh.yaml:1"))).await.unwrap();
    assert_eq!(running.inputs.mesh().config.root_namespace, "two");
    end(running).await;
}

#[actix::test]
async fn it_ends_within_ten_seconds_with_streams_open() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |_| true).await;
    let client = AdsClient::connect(running.addresses.grpc, "10.0.0.9").await.unwrap();
    let mut stream = client.sotw(None).await.unwrap();
    stream.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
    let response = stream.next().await.unwrap();
    assert!(response.resources.iter().any(|r| r.value.windows(9).any(|w| w == b"a.example")));
    end(running).await;
    assert!(stream.next().await.is_err());
}

#[actix::test]
async fn a_start_that_cannot_succeed_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut busy = settings(&[dir.path()], None);
    busy.xds.grpc_address = taken.local_addr().unwrap().into();
    let error = app::build(busy, Shutdown::default()).await.err().unwrap().to_string();
    assert!(error.contains("cannot listen on 127.0.0.1:"), "{error}");
    let missing = dir.path().join("nowhere");
    let error = app::build(settings(&[&missing], None), Shutdown::default()).await.err().unwrap().to_string();
    assert!(error.contains("nowhere"), "{error}");
    let mesh = dir.path().join("mesh.yaml");
    fs::write(&mesh, "trustDomain: [1]\n").unwrap();
    let error = app::build(settings(&[dir.path()], Some(&mesh)), Shutdown::default()).await.err().unwrap().to_string();
    assert!(error.contains("mesh.yaml"), "{error}");
}
