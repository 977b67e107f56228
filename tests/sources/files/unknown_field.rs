//! A field that the kind does not have.

use std::fs;

use pilothouse::sources::file::settle::Work;

use super::{entry, folder_of};

#[test]
fn an_unknown_field_is_taken_with_a_warning_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example").replace("  resolution:", "  resolutoin:")).unwrap();
    let mut folder = folder_of(dir.path());
    folder.look(&Work::everything());
    let findings = folder.tree().findings();
    let warnings: Vec<&str> = findings.warned.iter().map(|w| w.warning.as_str()).collect();
    assert!(warnings.contains(&"unknown field spec.resolutoin"), "{warnings:?} {:?}", findings.refused);
}
