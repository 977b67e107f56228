//! Files that cannot be read, or must not be: each is refused by name, and every other file is in force.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::Path,
    process::Command,
};

use pilothouse::sources::MOST_FINDINGS;
use serde_json::Value;

use super::{Attacked, ask, size};
use crate::stage::{DEADLINE, entry};

impl Attacked {
    /// The findings of the folder, as the page of sources has them, once it has one of this file that says this.
    async fn refused(&self, file: &str, reason: &str) -> usize {
        let start = std::time::Instant::now();
        loop {
            let page: Value = serde_json::from_str(&ask(self.http, "GET /debug/sourcez").await.body).unwrap();
            let refused: Vec<&Value> =
                page.as_array().unwrap().iter().flat_map(|s| s["findings"]["refused"].as_array().unwrap()).collect();
            let of_file = |r: &&&Value| r["file"].as_str().unwrap().ends_with(file);
            if refused.iter().filter(of_file).any(|r| r["reason"].as_str().unwrap().contains(reason)) {
                return refused.iter().filter(of_file).count();
            }
            assert!(start.elapsed() < DEADLINE, "{file} is not refused: {reason}: {refused:#?}");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}

/// A document whose aliases multiply.
fn bomb() -> String {
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_string();
    for i in 1..20 {
        bomb.push_str(&format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(",")));
    }
    bomb
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_cannot_be_read_are_named_and_stop_no_other() {
    let mut attacked = Attacked::plain().await;
    let (root, outside) = (attacked.dir.path().to_path_buf(), tempfile::tempdir().unwrap());
    let beyond = outside.path().to_path_buf();
    let writing = async move {
        pipe(&root.join("pipe.yaml"));
        pipe(&beyond.join("pipe.yaml"));
        fs::write(beyond.join("x.yaml"), entry("x", "x.example")).unwrap();
        symlink(beyond.join("pipe.yaml"), root.join("link.yaml")).unwrap();
        symlink("/dev/zero", root.join("zero.yaml")).unwrap();
        symlink(beyond.join("x.yaml"), root.join("elsewhere.yaml")).unwrap();
        symlink("/", root.join("everything")).unwrap();
        symlink("itself.yaml", root.join("itself.yaml")).unwrap();
        symlink(".", root.join("again")).unwrap();
        fs::create_dir(root.join("folder.yaml")).unwrap();
        File::create(root.join("huge.yaml")).unwrap().set_len(100 << 20).unwrap();
        fs::write(root.join("bomb.yaml"), bomb()).unwrap();
        fs::write(root.join("deep.yaml"), "[".repeat(1 << 20)).unwrap();
        fs::write(root.join("nul.yaml"), vec![0; 1 << 20]).unwrap();
        fs::write(root.join("bytes.yaml"), vec![0xff; 1 << 20]).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.join("socket.yaml")).unwrap();
    };
    attacked.under("files that cannot be read", writing).await;
    for (file, reason) in [
        ("/pipe.yaml", "it is a named pipe, not a regular file"),
        ("/link.yaml", "leads out of"),
        ("/zero.yaml", "leads out of"),
        ("/elsewhere.yaml", "leads out of"),
        ("/everything", "leads out of"),
        ("/socket.yaml", "socket"),
        ("/huge.yaml", "longer than"),
        ("/bomb.yaml", "limits"),
        ("/deep.yaml", ""),
        ("/nul.yaml", ""),
        ("/bytes.yaml", "UTF-8"),
    ] {
        attacked.refused(file, reason).await;
    }
    attacked.is_well().await;
}

/// In the long form a million, of which the findings once took two gigabytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn very_many_bad_documents_are_a_few_lines_and_a_page_of_bounded_size() {
    let mut attacked = Attacked::plain().await;
    let (folder, count) = (attacked.dir.path().to_path_buf(), size(60_000, 1_000_000));
    attacked.grows = 150 + count / 1000;
    attacked.stays = attacked.grows;
    let writing = async move {
        let bad = |n| format!("---\napiVersion: v1\nkind: Service\nmetadata: {{name: [{n}]}}\n");
        fs::write(folder.join("bad.yaml"), (0..count).map(bad).collect::<String>()).unwrap();
    };
    attacked.under("bad documents", writing).await;
    // The page has a bounded number of them, and the number of the rest.
    assert_eq!(attacked.refused("/bad.yaml", "").await, MOST_FINDINGS);
    let page = ask(attacked.http, "GET /debug/sourcez").await.body;
    assert!(page.len() < 500 * MOST_FINDINGS, "the page has {} bytes", page.len());
    let reports: Value = serde_json::from_str(&page).unwrap();
    assert_eq!(reports[0]["findings"]["more"]["refused"], count - MOST_FINDINGS);
    let lines = attacked.server.lines_with("bad.yaml");
    assert!((1..=60).contains(&lines), "{lines} lines");
    let totals = attacked.server.lines_with("more refused documents");
    assert!((1..=3).contains(&totals), "{totals} lines of totals");
}
