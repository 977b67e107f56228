//! Events without end.

use std::{
    fs::{self, File},
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use super::{Stage, entry};

#[tokio::test]
async fn a_folder_that_is_moved_in_is_seen_under_noise() {
    let stage = Stage::set(&entry("a", "a.example")).await;
    let (root, end) = (stage.root(), Arc::new(AtomicBool::new(false)));
    let ended = end.clone();
    let noise = thread::spawn(move || {
        let mut file = File::create(root.join("noise.yaml")).unwrap();
        while !ended.load(Ordering::Relaxed) {
            file.write_all(b"# noise\n").unwrap();
            fs::create_dir(root.join("noise")).unwrap();
            fs::remove_dir(root.join("noise")).unwrap();
            thread::sleep(Duration::from_millis(10));
        }
    });
    let (beside, inside) = (stage.dir.path().join("v1.2"), stage.root().join("v1.2"));
    fs::create_dir_all(beside.join("deep")).unwrap();
    fs::write(beside.join("deep/b.yaml"), entry("b", "b.example")).unwrap();
    fs::rename(&beside, &inside).unwrap();
    stage.until(|told| told.0 == ["a.example", "b.example"]).await;
    fs::write(inside.join("deep/c.yaml"), entry("c", "c.example")).unwrap();
    stage.until(|told| told.0 == ["a.example", "b.example", "c.example"]).await;
    fs::rename(&inside, &beside).unwrap();
    stage.until(|told| told.0 == ["a.example"]).await;
    end.store(true, Ordering::Relaxed);
    noise.join().unwrap();
}
