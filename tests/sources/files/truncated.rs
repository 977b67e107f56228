//! A file that is cut off, as one that is being written is.

use std::fs;

use pilothouse::sources::file::{folder::Folder, settle::Work};

use super::{entries, folder_of};

#[test]
fn a_thousand_truncations_lose_nothing_that_was_not_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    let whole = entries(8);
    fs::write(&path, &whole).unwrap();
    let mut folder = folder_of(dir.path());
    folder.look(&Work::everything());
    let closed = Work::closed(&fs::canonicalize(&path).unwrap());
    let names = |folder: &Folder| {
        let mut names: Vec<String> = folder.tree().in_force().keys().map(|k| k.name.to_string()).collect();
        names.sort();
        names
    };
    let all = names(&folder);
    for i in 0..1000 {
        let cut = &whole[..whole.len() * i / 1000];
        fs::write(&path, cut).unwrap();
        folder.look(&closed);
        let left = names(&folder);
        let intact = cut.matches("resolution: DNS\n").count();
        assert!(left.len() >= intact, "after a cut at {i}/1000: {left:?}");
        let findings = folder.tree().findings();
        let unreadable = findings.refused.iter().chain(&findings.skipped).any(|r| r.reason.contains("missing"));
        assert!(!unreadable || left == all, "after a cut at {i}/1000: {left:?}");
        fs::write(&path, &whole).unwrap();
        folder.look(&closed);
        assert_eq!(names(&folder), all, "after a cut at {i}/1000");
        assert!(folder.tree().findings().refused.is_empty());
    }
}
