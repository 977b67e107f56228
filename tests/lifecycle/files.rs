//! The process follows its files, keeps its content when these break, and names the reason when it cannot start.

use std::{fs, io::Write, process::Command};

use pilothouse::{
    app,
    runtime::Shutdown,
    sources::{SourceReport, SourceState},
};

use crate::stage::{DEADLINE, end, entry, hosts, settings, start, until};

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
    let board = &running.sources.last().unwrap().board;
    tokio::time::timeout(DEADLINE, board.until(|r| r.last_error.contains("mesh.yaml:1"))).await.unwrap();
    assert_eq!(running.inputs.mesh().config.root_namespace, "two");
    fs::write(&mesh, "rootNamespace: three\ndefaultConfig:\n  discoveryAddress: nowhere\n").unwrap();
    let refused = "mesh.yaml:3:3: MeshConfig refused: defaultConfig.discoveryAddress: ";
    tokio::time::timeout(DEADLINE, board.until(|r| r.last_error.contains(refused))).await.unwrap();
    assert_eq!(running.inputs.mesh().config.root_namespace, "two");
    fs::write(&mesh, "rootNamespace: four\nextensionProviders:\n- name: tracer\n  zipkin: {service: a.b, port: 0}\n")
        .unwrap();
    until(&running, |c| c.mesh().config.root_namespace == "four").await;
    let warned = |r: &SourceReport| {
        let texts = r.findings.warned.iter().map(ToString::to_string);
        texts
            .filter(|text| {
                text.contains("mesh.yaml:4:26: MeshConfig warning: extensionProviders[tracer].zipkin.port: ")
            })
            .count()
    };
    tokio::time::timeout(DEADLINE, board.until(|r| warned(r) == 1)).await.unwrap();
    end(running).await;
}

#[actix::test]
async fn an_emptied_mesh_file_is_not_the_default_mesh_and_a_misspelt_field_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mesh = dir.path().join("mesh.yaml");
    fs::write(&mesh, "rootNamespace: one\naccessLogFil: /dev/stdout\ndefaultConfig: {concurrenci: 1}\n").unwrap();
    let running = start(&[dir.path()], Some(&mesh)).await;
    let board = running.sources.last().unwrap().board.clone();
    let named = |r: &SourceReport| r.findings.warned.iter().map(|w| w.warning.clone()).collect::<Vec<_>>();
    tokio::time::timeout(DEADLINE, board.until(|r| named(r).len() == 2)).await.unwrap();
    assert_eq!(named(&board.read()), ["unknown field accessLogFil", "unknown field defaultConfig.concurrenci"]);
    fs::write(&mesh, "").unwrap();
    tokio::time::timeout(DEADLINE, board.until(|r| r.last_error.contains("mesh.yaml: the file is empty")))
        .await
        .unwrap();
    assert_eq!(running.inputs.mesh().config.root_namespace, "one");
    fs::write(&mesh, "{}\n").unwrap();
    until(&running, |c| c.mesh().config.root_namespace == "istio-system").await;
    end(running).await;
}

#[actix::test]
async fn a_mesh_file_that_is_being_written_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mesh = dir.path().join("mesh.yaml");
    fs::write(&mesh, "rootNamespace: one\n").unwrap();
    let running = start(&[dir.path()], Some(&mesh)).await;
    let board = running.sources.last().unwrap().board.clone();
    tokio::time::timeout(DEADLINE, board.until(|r| r.state == SourceState::Synced)).await.unwrap();
    let mut file = fs::File::create(&mesh).unwrap();
    let looked = running.sources[0].board.read().objects;
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    until(&running, |c| hosts(c) == ["a.example"] && looked == 0).await;
    assert_eq!(running.inputs.mesh().config.root_namespace, "one");
    file.write_all(b"rootNamespace: two\n").unwrap();
    drop(file);
    until(&running, |c| c.mesh().config.root_namespace == "two").await;
    end(running).await;
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
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let error = app::build(settings(&[dir.path()], Some(&pipe)), Shutdown::default()).await.err().unwrap().to_string();
    assert!(error.contains("pipe: MeshConfig refused: it is a named pipe, not a regular file"), "{error}");
    let mesh = dir.path().join("mesh.yaml");
    fs::write(&mesh, "trustDomain: [1]\n").unwrap();
    let error = app::build(settings(&[dir.path()], Some(&mesh)), Shutdown::default()).await.err().unwrap().to_string();
    assert!(error.contains("mesh.yaml"), "{error}");
}
