//! Machines that nobody has, and a state folder that cannot be written.

use std::{
    fs::{self, File},
    io::Write,
    net::SocketAddr,
    path::Path,
    process::Command,
    time::Duration,
};

use pilothouse::{
    registration::SOURCE,
    store::last_good::Folder,
    testing::{ClientError, SotwStream},
};
use serde_json::json;
use tonic::Code;

use super::{Attacked, ask, size};
use crate::{
    binary::Binary,
    registration::{connect_to, folder, node},
    skipped::skipped,
    stage::{DEADLINE, entry},
};

fn address(number: usize) -> String {
    format!("10.9.{}.{}", number / 250, number % 250 + 1)
}

/// Adds the group of the machines to the folder.
fn with_group(attacked: &Attacked) {
    fs::copy(folder("{}").path().join("mesh.yaml"), attacked.dir.path().join("group.yaml")).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_thousand_machines_that_nobody_has() {
    let most = size(100, 2500);
    let flag = most.to_string();
    let mut attacked = Attacked::start(|dir| Binary::serve(dir, &["--max-registrations-per-group", &flag], &[])).await;
    with_group(&attacked);
    attacked.is_well().await;
    let (grpc, count) = (attacked.address, most + size(50, 500));
    let first = first_machine(grpc, &address(0)).await;
    let coming = async move {
        let (mut held, mut refused) = (vec![first], 0);
        for from in (1..count).step_by(50) {
            let group = (from..count.min(from + 50)).map(|n| connect_to(grpc, node(&address(n), json!({}))));
            for answer in futures::future::join_all(group).await {
                match answer {
                    Ok(stream) => held.push(stream),
                    Err(ClientError::Status(status)) => {
                        let named = status.message().contains("--max-registrations-per-");
                        assert!(status.code() == Code::Unavailable && named, "{status}");
                        refused += 1;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
        assert!(refused >= count - most && held.len() <= most, "{} are let in, {refused} are refused", held.len());
        held
    };
    attacked.under("made-up machines", coming).await;
    let page = ask(attacked.http, "GET /debug/configz").await.body;
    let entries = page.matches("\"WorkloadEntry\"").count();
    assert!((1..=most).contains(&entries), "{entries} entries");
}

/// Connects as soon as the group is in force.
async fn first_machine(grpc: SocketAddr, ip: &str) -> SotwStream {
    let connected = async {
        loop {
            match connect_to(grpc, node(ip, json!({}))).await {
                Ok(stream) => return stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(DEADLINE, connected).await.expect("the machine is not answered")
}

fn saved(state: &Path, source: &str, name: &str) -> bool {
    let saved = Folder::open(state, 1 << 30).ok().and_then(|folder| folder.load(source).ok().flatten());
    saved.is_some_and(|saved| saved.configs.iter().any(|config| &*config.meta.name == name))
}

async fn until_saved(state: &Path, source: &str, name: &str) {
    let wait = async {
        while !saved(state, source, name) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, wait).await.unwrap_or_else(|_| panic!("{name} of {source} is not saved"));
}

/// Takes the folder away and puts a file in its place; gives it back. Nothing that came meanwhile is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_folder_that_vanishes_and_comes_back() {
    let disk = tempfile::tempdir().unwrap();
    let (state, away) = (disk.path().join("state"), disk.path().join("away"));
    fs::create_dir(&state).unwrap();
    let flags = ["--state-dir", state.to_str().unwrap()];
    let env = [("PILOT_WORKLOAD_ENTRY_GRACE_PERIOD", "1h")];
    let mut attacked = Attacked::start(|dir| Binary::serve(dir, &flags, &env)).await;
    with_group(&attacked);
    let of_files = format!("file:{}", attacked.dir.path().display());
    let _first = first_machine(attacked.address, "10.9.0.1").await;
    until_saved(&state, SOURCE, "vms-10.9.0.1").await;
    until_saved(&state, &of_files, "a").await;
    fs::rename(&state, &away).unwrap();
    fs::write(&state, "no folder").unwrap();
    attacked.write("late.yaml", entry("late", "late.example"));
    let (grpc, count) = (attacked.address, size(10, 200));
    let machines = async move {
        let mut held = Vec::new();
        for number in 2..2 + count {
            held.push(first_machine(grpc, &address(number)).await);
        }
        held
    };
    attacked.under("machines without a disk", machines).await;
    fs::remove_file(&state).unwrap();
    fs::rename(&away, &state).unwrap();
    for number in 2..2 + count {
        until_saved(&state, SOURCE, &format!("vms-{}", address(number))).await;
    }
    until_saved(&state, &of_files, "late").await;
    attacked.is_well().await;
}

/// A disk of a megabyte that is full, and has room again. It is mounted where the program alone sees it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full_and_has_room_again() {
    let mount = "mount -t tmpfs -o size=1m none \"$0\"";
    let apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"];
    let disk = tempfile::tempdir().unwrap();
    let tried = Command::new(apart[0]).args(&apart[1..]).arg(mount).arg(disk.path()).output();
    if !tried.is_ok_and(|output| output.status.success()) {
        skipped("this system lets no user mount a disk of its own");
        return;
    }
    let state = disk.path().to_path_buf();
    let mut attacked = Attacked::start(|dir| {
        let mut command = Command::new(apart[0]);
        command.args(&apart[1..]).arg(format!("{mount} && exec \"$@\"")).arg(&state);
        command.args([env!("CARGO_BIN_EXE_pilothouse"), "serve", "--monitoring-addr", "", "--log-format", "json"]);
        command.args(["--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--state-dir"]).arg(&state);
        Binary::spawn({
            command.arg("--config-dir").arg(dir).env("PILOT_WORKLOAD_ENTRY_GRACE_PERIOD", "1h");
            command
        })
    })
    .await;
    with_group(&attacked);
    let state = attacked.server.seen(&state);
    let _first = first_machine(attacked.address, "10.9.0.1").await;
    until_saved(&state, SOURCE, "vms-10.9.0.1").await;
    let filler = state.join("filler");
    let mut file = File::create(&filler).unwrap();
    let full = loop {
        if let Err(error) = file.write_all(&[0; 4096]) {
            break error;
        }
    };
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    // A file that is open keeps its room when it is removed.
    drop(file);
    let (grpc, count) = (attacked.address, size(10, 40));
    let machines = async move {
        let mut held = Vec::new();
        for number in 2..2 + count {
            held.push(first_machine(grpc, &address(number)).await);
        }
        held
    };
    attacked.under("machines with a full disk", machines).await;
    assert!(attacked.server.lines_with("not saved") > 0, "it is told");
    assert!(saved(&state, SOURCE, "vms-10.9.0.1"), "a write that fails takes nothing along");
    fs::remove_file(&filler).unwrap();
    for number in 2..2 + count {
        until_saved(&state, SOURCE, &format!("vms-{}", address(number))).await;
    }
    attacked.is_well().await;
}
