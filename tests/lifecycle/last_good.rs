//! A start at which the source cannot be reached: the last good content is served, marked as old, and replaced when the
//! source is back. A file that is damaged is refused.

use std::{fs, net::SocketAddr, path::Path, time::Duration};

use pilothouse::{
    app::{self, Running},
    runtime::Shutdown,
    settings::Settings,
    sources::SourceState,
};

use crate::stage::{DEADLINE, end, entry, hosts, restarted, settings, start, until};

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
    alone.wards.faults().order("aggregate-cache", 1);
    fs::write(local.path().join("b.yaml"), entry("b", "b.example")).unwrap();
    restarted(&alone, "aggregate-cache", 1).await;
    until(&alone, |c| hosts(c) == ["a.example", "b.example"]).await;
    end(alone).await;
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
