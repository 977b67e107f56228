//! A file that may not be read any more.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use pilothouse::sources::file::settle::Work;

use super::{entry, folder_of, hosts};

#[test]
fn an_unreadable_file_keeps_its_objects() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    fs::write(&path, entry("a", "a.example")).unwrap();
    let mut folder = folder_of(dir.path());
    folder.look(&Work::everything());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&path).is_ok() {
        // The superuser may read anything except a link to itself.
        fs::remove_file(&path).unwrap();
        symlink("a.yaml", &path).unwrap();
    }
    let look = folder.look(&Work::everything());
    assert!(look.change.is_empty());
    assert_eq!(hosts(&folder), ["a.example"]);
    assert_eq!(folder.tree().findings().refused.len(), 1);
    assert!(folder.trouble().is_some() || !folder.tree().kept().is_empty());
}
