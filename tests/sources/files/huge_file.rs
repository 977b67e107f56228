//! A file of a hundred megabytes.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use pilothouse::sources::file::settle::Work;

use super::{entry, folder_of, hosts};

#[test]
fn a_file_of_a_hundred_megabytes_is_refused_unread() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("good.yaml"), entry("good", "good.example")).unwrap();
    fs::File::create(dir.path().join("huge.yaml")).unwrap().set_len(100 << 20).unwrap();
    let mut folder = folder_of(dir.path());
    folder.look(&Work::everything());
    assert_eq!(hosts(&folder), ["good.example"]);
    assert!(folder.tree().findings().refused[0].reason.contains("longer than"));
}

#[test]
fn a_long_file_waits_for_the_others_and_nothing_goes_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example") + &entry("moves", "moves.example")).unwrap();
    let mut folder = folder_of(dir.path());
    folder.look(&Work::everything());
    let long =
        format!("# {}\n", "x".repeat(2 << 20)) + &entry("moves", "moves.example") + &entry("long", "long.example");
    fs::rename(write(dir.path(), "long.new", &long), dir.path().join("long.yaml")).unwrap();
    fs::rename(write(dir.path(), "a.new", &entry("b", "b.example")), dir.path().join("a.yaml")).unwrap();
    folder.look(&Work::everything());
    assert_eq!(hosts(&folder), ["a.example", "b.example", "moves.example"]);
    assert!(folder.next_due().is_some_and(|due| due <= Instant::now()));
    folder.look(&Work::default());
    assert_eq!(hosts(&folder), ["b.example", "long.example", "moves.example"]);
    assert!(folder.next_due().is_none());
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}
