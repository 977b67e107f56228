//! Files that change without end, and very many of them.

use std::{
    fs::{self, File},
    io::Write,
    time::{Duration, Instant},
};

use futures::FutureExt;
use serde_json::Value;
use tokio::task::JoinSet;

use super::{Attacked, ask, patience, size};
use crate::stage::{DEADLINE, entry};

/// An entry that no proxy has, and whose endpoint is none of the proxies.
fn far(name: &str) -> String {
    let entry = entry(name, &format!("{name}.far"))
        .replace("namespace: shop", "namespace: far")
        .replace("10.0.0.1", "10.9.0.1");
    entry.replace("spec:\n", "spec:\n  exportTo: ['.']\n")
}

/// The number of objects in force.
pub(super) async fn objects(http: std::net::SocketAddr) -> u64 {
    let page: Value = serde_json::from_str(&ask(http, "GET /debug/sourcez").await.body).unwrap();
    page.as_array().unwrap().iter().map(|source| source["objects"].as_u64().unwrap()).sum()
}

/// A file is rewritten, another one grows and a folder comes and goes, a hundred times a second each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_change_a_hundred_times_a_second() {
    let mut attacked = Attacked::plain().await;
    let root = attacked.dir.path().to_path_buf();
    // Ends with the test, before its folder does.
    let mut noise = JoinSet::new();
    noise.spawn(async move {
        let mut file = File::create(root.join("noise.yaml")).unwrap();
        for number in 0.. {
            fs::write(root.join("again.yaml"), far(&format!("again{number}"))).unwrap();
            file.write_all(b"# noise\n").unwrap();
            fs::create_dir(root.join("noise")).unwrap();
            fs::remove_dir(root.join("noise")).unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let beside = tempfile::tempdir_in(attacked.dir.path().parent().unwrap()).unwrap();
    let (outside, inside) = (beside.path().join("v1.2"), attacked.dir.path().join("v1.2"));
    fs::create_dir_all(outside.join("deep")).unwrap();
    fs::write(outside.join("deep/b.yaml"), entry("b", "b.example")).unwrap();
    attacked.is_well().await;
    fs::rename(&outside, &inside).unwrap();
    let moved = Instant::now();
    attacked.until("outbound|80||b.example").await;
    let moved = moved.elapsed();
    println!("a folder that is moved in is seen after {moved:.3?}");
    assert!(moved <= patience(), "{moved:?}");
    fs::write(inside.join("deep/c.yaml"), entry("c", "c.example")).unwrap();
    attacked.until("outbound|80||c.example").await;
    attacked.besieged("files that change", size(5, 100), vec![std::future::pending().boxed()]).await;
    noise.shutdown().await;
}

/// In the long form a hundred thousand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_files() {
    let mut attacked = Attacked::plain().await;
    let (root, count) = (attacked.dir.path().to_path_buf(), size(2_000, 100_000));
    attacked.grows = 200 + count / 50;
    let before = objects(attacked.http).await;
    let http = attacked.http;
    let writing = async move {
        let work = tokio::task::spawn_blocking(move || {
            for n in 0..count {
                if n % 1000 == 0 {
                    fs::create_dir(root.join(format!("d{n}"))).unwrap();
                }
                fs::write(root.join(format!("d{}/f{n}.yaml", n / 1000 * 1000)), far(&format!("f{n}"))).unwrap();
            }
        });
        work.await.unwrap();
        let start = Instant::now();
        while objects(http).await < before + count as u64 {
            assert!(start.elapsed() < DEADLINE * 2, "{} of {count} files are in force", objects(http).await - before);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    attacked.stays = attacked.grows;
    attacked.under("very many files", writing).await;
}
