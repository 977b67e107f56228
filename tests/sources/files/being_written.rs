//! A file that is written in place, slowly: `helm template . > all.yaml`.

use std::{
    fs::{self, File},
    io::Write,
};

use pilothouse::sources::file::settle::Work;

use super::{Stage, entries, entry, folder_of, hosts};

#[test]
fn a_file_read_before_its_writer_is_done_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    fs::write(&path, entries(3)).unwrap();
    let mut folder = folder_of(dir.path());
    folder.look(&Work::everything());
    let before = hosts(&folder);
    let mut file = File::create(&path).unwrap();
    assert!(folder.look(&Work::everything()).change.is_empty(), "the file is empty");
    file.write_all(entry("e0", "half").as_bytes()).unwrap();
    assert!(folder.look(&Work::everything()).change.is_empty(), "a part of the file is there");
    assert_eq!(hosts(&folder), before);
    assert!(folder.next_due().is_some(), "the file is looked at again though nothing more happens to it");
    file.write_all(entry("e1", "whole").as_bytes()).unwrap();
    drop(file);
    folder.look(&Work::closed(&fs::canonicalize(&path).unwrap()));
    assert_eq!(hosts(&folder), ["half", "whole"]);
}

#[tokio::test]
async fn a_file_that_is_emptied_and_filled_later_loses_nothing() {
    let stage = Stage::set(&entries(3)).await;
    let mut file = File::create(stage.root().join("a.yaml")).unwrap();
    fs::write(stage.root().join("b.yaml"), entry("b", "b.example")).unwrap();
    stage.until(|told| told.0.len() == 4).await;
    file.write_all(entries(2).as_bytes()).unwrap();
    fs::write(stage.root().join("c.yaml"), entry("c", "c.example")).unwrap();
    stage.until(|told| told.0.len() == 5).await;
    assert_eq!(stage.recorder.told().1, 0);
    file.write_all(entry("e2", "new.example").as_bytes()).unwrap();
    drop(file);
    stage.until(|told| told.0.contains(&"new.example".to_string())).await;
    assert_eq!(stage.recorder.told().1, 0);
}

#[tokio::test]
async fn a_file_that_is_never_closed_is_taken_in_when_it_is_quiet() {
    let stage = Stage::set(&entries(3)).await;
    let mut file = File::options().append(true).open(stage.root().join("a.yaml")).unwrap();
    file.write_all(entry("late", "late.example").as_bytes()).unwrap();
    stage.until(|told| told.0.contains(&"late.example".to_string())).await;
    drop(file);
}
