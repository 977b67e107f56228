//! Registered workloads on disk: those that were answered are there after a kill, and no state of the disk keeps the control
//! plane from serving or loses a file without telling it.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use pilothouse::{app::Running, registration::SOURCE, store::last_good::Folder, testing::SotwStream};
use serde_json::{Value, json};

use crate::{
    binary::Binary,
    confirm::ask,
    registration::{connect_to, folder, node, run, until_entry, with_grace, workload},
    stage::{DEADLINE, end},
};

const NEVER: Duration = Duration::from_secs(3600);

fn serve(folder: &Path, state: &Path) -> Binary {
    let state = state.to_str().unwrap();
    Binary::serve(folder, &["--state-dir", state], &[("PILOT_WORKLOAD_ENTRY_GRACE_PERIOD", "1h")])
}

/// Connects as soon as the server is ready.
pub async fn machine(grpc: SocketAddr, ip: &str) -> SotwStream {
    let connected = async {
        loop {
            if let Ok(stream) = connect_to(grpc, node(ip, json!({}))).await {
                return stream;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, connected).await.expect("the machine is not answered")
}

fn saved(state: &Path) -> Vec<String> {
    let saved = Folder::open(state, 1 << 30).unwrap().load(SOURCE);
    saved.ok().flatten().map_or_else(Vec::new, |s| s.configs.iter().map(|c| c.meta.name.to_string()).collect())
}

async fn until_saved(state: &Path, name: &str) {
    let wait = async {
        while !saved(state).iter().any(|n| n == name) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, wait).await.unwrap_or_else(|_| panic!("{name} is not saved: {:?}", saved(state)));
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_that_were_answered_are_there_after_a_kill() {
    let (dir, state) = (folder("{}"), tempfile::tempdir().unwrap());
    let mut server = serve(dir.path(), state.path());
    let (grpc, _) = server.addresses();
    let _first = machine(grpc, "10.9.0.1").await;
    let others = (2..12).map(|n| async move { machine(grpc, &format!("10.9.0.{n}")).await });
    let _streams = futures::future::join_all(others).await;
    server.kill();
    let mut names: Vec<String> = (1..12).map(|n| format!("vms-10.9.0.{n}")).collect();
    names.sort();
    assert_eq!(saved(state.path()), names, "on disk when they were answered");

    let mut server = serve(dir.path(), state.path());
    let (grpc, http) = server.addresses();
    let _again = machine(grpc, "10.9.0.1").await;
    let page = tokio::task::spawn_blocking(move || ask(http, "GET /debug/configz HTTP/1.0")).await.unwrap();
    for name in names {
        assert!(page.contains(&format!("\"{name}\"")), "{name} is lost: {page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_kept_aside_and_told() {
    let (dir, state) = (folder("{}"), tempfile::tempdir().unwrap());
    let path = Folder::open(state.path(), 1 << 30).unwrap().path(SOURCE);
    fs::write(&path, "precious").unwrap();
    let mut server = serve(dir.path(), state.path());
    let aside = server.until("word of the file", |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(line["kept"].as_str()?))
    });
    let (grpc, _) = server.addresses();
    let _machine = machine(grpc, "10.9.0.1").await;
    until_saved(state.path(), "vms-10.9.0.1").await;
    assert_eq!(fs::read_to_string(aside).unwrap(), "precious");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_in_the_place_of_the_file_keeps_nothing_from_starting() {
    let (dir, state) = (folder("{}"), tempfile::tempdir().unwrap());
    let path = Folder::open(state.path(), 1 << 30).unwrap().path(SOURCE);
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let mut server = serve(dir.path(), state.path());
    let (grpc, _) = server.addresses();
    let _machine = machine(grpc, "10.9.0.1").await;
    until_saved(state.path(), "vms-10.9.0.1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_on_the_size_of_files_ends_nothing() {
    let (dir, state) = (folder("{}"), tempfile::tempdir().unwrap());
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 0; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_pilothouse"), "serve"]);
    command.args(["--monitoring-addr", "", "--log-format", "json", "--grpc-addr", "127.0.0.1:0"]);
    command.args(["--http-addr", "127.0.0.1:0", "--config-dir"]).arg(dir.path());
    command.arg("--state-dir").arg(state.path());
    let mut server = Binary::spawn(command);
    let (grpc, _) = server.addresses();
    let _machine = machine(grpc, "10.9.0.1").await;
    server.until("word of the write", |line| line.contains("registered workloads are not saved").then_some(()));
    let _another = machine(grpc, "10.9.0.2").await;
    server.terminate();
    let ended = tokio::task::spawn_blocking(move || server.ends_within(DEADLINE)).await.unwrap();
    assert_eq!(ended.code(), Some(0));
}

async fn kept(dir: &Path, state: &Path) -> Running {
    let mut settings = with_grace(dir, NEVER);
    (settings.state.folder, settings.state.quiet) = (Some(state.to_path_buf()), Duration::from_millis(20));
    run(settings).await
}

/// Takes the folder away, as a disk that is full would, and gives it back.
#[actix::test]
async fn a_write_that_failed_is_tried_again_although_nothing_changes() {
    let (dir, disk) = (folder("{}"), tempfile::tempdir().unwrap());
    let (state, away) = (disk.path().join("state"), disk.path().join("away"));
    fs::create_dir(&state).unwrap();
    let running = kept(dir.path(), &state).await;
    let _first = workload(&running, "10.9.0.1").await;
    until_saved(&state, "vms-10.9.0.1").await;
    let of_files = format!("file:{}", dir.path().display());
    let load = |state: &Path| Folder::open(state, 1 << 30).unwrap().load(&of_files).ok().flatten();
    let first = async {
        while load(&state).is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, first).await.expect("the content of the folder is not saved");

    fs::rename(&state, &away).unwrap();
    fs::write(&state, "no folder").unwrap();
    let _second = workload(&running, "10.9.0.2").await;
    until_entry(&running, "vms-10.9.0.2", |_| true).await;
    let of_machines = "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: late, namespace: shop}\nspec: \
        {egress: [{hosts: [\"./*\"]}]}\n";
    fs::write(dir.path().join("late.yaml"), of_machines).unwrap();
    let seen = async {
        while !running.store.snapshot().by_kind.values().any(|l| l.iter().any(|c| &*c.meta.name == "late")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, seen).await.unwrap();
    fs::remove_file(&state).unwrap();
    fs::rename(&away, &state).unwrap();
    until_saved(&state, "vms-10.9.0.2").await;
    let all = async {
        while !load(&state).is_some_and(|s| s.configs.iter().any(|c| &*c.meta.name == "late")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, all).await.expect("the content of the folder is not saved");
    end(running).await;
}
