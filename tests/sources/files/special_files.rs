//! Special files, and links that lead elsewhere.

use std::{fs, os::unix::fs::symlink, process::Command};

use pilothouse::sources::SourceState;

use super::{Stage, entries, entry};

#[tokio::test]
async fn pipes_and_links_out_of_the_folder_are_refused_by_name_and_stop_no_other_file() {
    let stage = Stage::set(&entries(2)).await;
    let (root, outside) = (stage.root(), stage.dir.path().join("outside"));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("x.yaml"), entry("x", "x.example")).unwrap();
    for pipe in [root.join("pipe.yaml"), outside.join("pipe.yaml")] {
        assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    }
    symlink(outside.join("pipe.yaml"), root.join("link.yaml")).unwrap();
    symlink(outside.join("x.yaml"), root.join("x.yaml")).unwrap();
    symlink("/", root.join("everything")).unwrap();
    fs::write(root.join("b.yaml"), entry("b", "b.example")).unwrap();
    stage.until(|told| told.0 == ["b.example", "e0.example", "e1.example"]).await;
    let refused = |name: &str, reason: &str| {
        let board = stage.port.board.clone();
        let (name, reason) = (name.to_string(), reason.to_string());
        async move {
            let named = |r: &pilothouse::sources::Refused| r.file.ends_with(&name) && r.reason.contains(&reason);
            let waited = board.until(|report| report.findings.refused.iter().any(named));
            let told = tokio::time::timeout(crate::DEADLINE, waited).await;
            assert!(told.is_ok(), "{name}: {:?}", board.read().findings.refused);
        }
    };
    refused("/pipe.yaml", "it is a named pipe, not a regular file").await;
    refused("/link.yaml", "leads out of").await;
    refused("/x.yaml", "leads out of").await;
    refused("/everything", "leads out of").await;
    assert_eq!(stage.port.board.read().state, SourceState::Synced);
    // In one step: a file that is gone, if only for a moment, takes its objects along.
    fs::rename(outside.join("pipe.yaml"), root.join("a.yaml")).unwrap();
    refused("/a.yaml", "it is a named pipe").await;
    fs::write(root.join("c.yaml"), entry("c", "c.example")).unwrap();
    stage.until(|told| told.0.contains(&"c.example".to_string())).await;
    assert!(stage.recorder.told().0.contains(&"e0.example".to_string()), "the last content of the file stays");
}
