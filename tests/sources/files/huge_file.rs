//! A file of a hundred megabytes.

use std::fs;

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
