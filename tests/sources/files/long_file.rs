//! A file that takes long to parse.

use std::{
    fs,
    path::{Path, PathBuf},
};

use pilothouse::sources::{
    Change,
    file::{folder::Folder, settle::Work},
};

use super::{Stage, entry, folder_of, hosts};
use crate::DEADLINE;

/// Rounds in which the machine may stall for as long as the parse takes.
const ROUNDS: usize = 5;

#[tokio::test]
async fn a_short_file_is_delivered_while_a_long_one_is_parsed() {
    let stage = Stage::set(&entry("a", "a.example")).await;
    let (mut in_order, mut round) = (false, 0);
    while !in_order && round < ROUNDS {
        round += 1;
        let (short, last) = (format!("short{round}.example"), format!("e19999.v{round}.example"));
        let long: String = (0..20_000).map(|n| entry(&format!("e{n}"), &format!("e{n}.v{round}.example"))).collect();
        fs::write(stage.dir.path().join("long.new"), long).unwrap();
        fs::rename(stage.dir.path().join("long.new"), stage.root().join("long.yaml")).unwrap();
        tokio::time::timeout(DEADLINE, stage.port.board.until(|r| r.unparsed.len() == 1)).await.unwrap();
        // A resync is served before events of files, and does not wait for the parse either.
        stage.port.resync.notify_one();
        fs::write(stage.root().join("a.yaml"), entry("a", &short)).unwrap();
        stage.until(|told| told.0.contains(&short) && told.0.contains(&last)).await;
        in_order = batch_of(&stage, &short) < batch_of(&stage, &last);
    }
    assert!(in_order, "the short file waited for the long one in each of {ROUNDS} rounds");
    tokio::time::timeout(DEADLINE, stage.port.board.until(|r| r.unparsed.is_empty())).await.unwrap();
}

/// The number of the first batch that brings this host.
fn batch_of(stage: &Stage, host: &str) -> Option<usize> {
    stage.recorder.batches().iter().position(|batch| {
        let (Change::Full(brought) | Change::Delta { upserts: brought, .. }) = &batch.change;
        brought.iter().any(|c| c.service_entry().is_some_and(|e| e.hosts == [host]))
    })
}

/// A text that is long, although it holds only these objects.
fn long(entries: &[&str]) -> String {
    let entries: String = entries.iter().map(|name| entry(name, &format!("{name}.example"))).collect();
    format!("# {}\n{entries}", "x".repeat(2 << 20))
}

/// Puts a complete file in place.
fn put(folder: &Path, name: &str, text: &str) {
    let path = folder.join(format!("{name}.new"));
    fs::write(&path, text).unwrap();
    fs::rename(path, folder.join(name)).unwrap();
}

/// Looks again each time that a long file was parsed, until none is left.
async fn parse_all(folder: &mut Folder) {
    while folder.unparsed().next().is_some() {
        let parsed = folder.parsed();
        tokio::time::timeout(DEADLINE, parsed.notified()).await.unwrap();
        folder.look(&Work::default());
    }
}

fn unparsed(folder: &Folder) -> Vec<PathBuf> {
    folder.unparsed().map(|path| path.file_name().unwrap().into()).collect()
}

#[tokio::test]
async fn an_object_that_moves_to_a_long_file_stays_and_others_go() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "a.yaml", &(entry("a", "a.example") + &entry("moves", "moves.example") + &entry("c", "c.example")));
    let mut folder = folder_of(dir.path());
    folder.look(&Work::everything());
    put(dir.path(), "long.yaml", &long(&["moves", "long"]));
    put(dir.path(), "a.yaml", &(entry("b", "b.example") + &entry("c", "c.example")));
    folder.look(&Work::everything());
    assert_eq!(hosts(&folder), ["a.example", "b.example", "c.example", "moves.example"]);
    put(dir.path(), "a.yaml", &entry("b", "b.example"));
    // This one goes at once if the text of the long file was read before, and with it otherwise.
    folder.look(&Work::everything());
    parse_all(&mut folder).await;
    assert_eq!(hosts(&folder), ["b.example", "long.example", "moves.example"]);
}

#[tokio::test]
async fn the_first_look_reads_long_files_too_also_when_the_folder_comes_late() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("configs");
    let mut folder = folder_of(&root);
    folder.look(&Work::everything());
    assert!(folder.is_out_of_reach());
    fs::create_dir(&root).unwrap();
    put(&root, "long.yaml", &long(&["long"]));
    put(&root, "a.yaml", &entry("a", "a.example"));
    folder.look(&Work::everything());
    assert_eq!(hosts(&folder), ["a.example", "long.example"]);
}

#[tokio::test]
async fn long_files_are_parsed_one_after_another_in_their_last_version_and_the_first_of_two_equals_wins() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "z.yaml", &entry("twice", "short.example"));
    let mut folder = folder_of(dir.path());
    folder.look(&Work::everything());
    for name in ["l1", "l2", "l3", "l4"] {
        put(dir.path(), &format!("{name}.yaml"), &long(&["twice", name]));
    }
    folder.look(&Work::everything());
    assert_eq!(unparsed(&folder).len(), 4);
    // A newer text, a short one, one that cannot be read, and none.
    put(dir.path(), "l1.yaml", &long(&["twice", "newer"]));
    put(dir.path(), "l2.yaml", &entry("l2", "l2.short.example"));
    fs::write(dir.path().join("l3.new"), b"a: \xff\n").unwrap();
    fs::rename(dir.path().join("l3.new"), dir.path().join("l3.yaml")).unwrap();
    fs::remove_file(dir.path().join("l4.yaml")).unwrap();
    folder.look(&Work::everything());
    assert_eq!(unparsed(&folder), [PathBuf::from("l1.yaml")]);
    parse_all(&mut folder).await;
    assert_eq!(hosts(&folder), ["l2.short.example", "newer.example", "twice.example"]);
    assert_eq!(folder.tree().findings().refused.len(), 1);
}

#[tokio::test]
async fn a_long_file_that_changes_all_the_time_comes_into_force_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "a.yaml", &entry("a", "a.example"));
    let mut folder = folder_of(dir.path());
    folder.look(&Work::everything());
    let mut round = 0;
    let in_force = async {
        while hosts(&folder).len() < 3 {
            round += 1;
            put(dir.path(), "long.yaml", &long(&["long", &format!("v{round}")]));
            folder.look(&Work::everything());
            if round > 1 {
                folder.parsed().notified().await;
                put(dir.path(), "long.yaml", &long(&["long", &format!("w{round}")]));
                folder.look(&Work::everything());
            }
        }
    };
    tokio::time::timeout(DEADLINE, in_force).await.unwrap();
    assert!(unparsed(&folder).len() == 1, "a newer text waits");
}
