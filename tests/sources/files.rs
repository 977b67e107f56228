//! The file source against bad input and hostile folders, one file for each way: nothing crashes, the other objects stay in
//! force, and the report names the fault and its place.

mod alias_bomb;
mod being_written;
mod config_map;
mod deep_nesting;
mod duplicate_key;
mod editors;
mod huge_file;
mod long_file;
mod many_files;
mod mass_deletion;
mod noise;
mod not_utf8;
mod remote_cluster;
mod removed_folder;
mod resync;
mod special_files;
mod truncated;
mod unknown_field;
mod unreadable;
mod wrong_type;

use std::{fs, path::Path, sync::Arc};

use pilothouse::{
    model::Origin,
    settings::SourceSettings,
    sources::{
        Refused, Source, SourceBoard, SourcePort, SourceState,
        file::{FileSource, folder::Folder, settle::Work, tree::InForce},
    },
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::{DEADLINE, recorder::Recorder};

fn entry(name: &str, host: &str) -> String {
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata:\n  name: {name}\n  namespace: shop\nspec:\n  hosts:\n  - {host}\n  ports:\n  - number: 80\n    name: http\n    protocol: HTTP\n  resolution: DNS\n"
    )
}

fn entries(count: usize) -> String {
    (0..count).map(|i| entry(&format!("e{i}"), &format!("e{i}.example"))).collect()
}

fn folder_of(root: &Path) -> Folder {
    folder_of_cluster(root, "")
}

fn folder_of_cluster(root: &Path, cluster: &str) -> Folder {
    let base = Origin { source: "file:test".into(), cluster: cluster.into(), ..Origin::default() };
    Folder::new(base, root.to_path_buf(), Vec::new(), &SourceSettings::default(), InForce::default())
}

fn hosts(folder: &Folder) -> Vec<String> {
    let mut hosts: Vec<String> =
        folder.tree().in_force().values().map(|c| c.service_entry().unwrap().hosts[0].clone()).collect();
    hosts.sort();
    hosts
}

/// A folder with one good file and this one, looked at once: the refusals, after checking that the good one is in force.
fn refused_beside_a_good_one(bytes: &[u8]) -> Vec<Refused> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("good.yaml"), entry("good", "good.example")).unwrap();
    fs::write(dir.path().join("bad.yaml"), bytes).unwrap();
    let mut folder = folder_of(dir.path());
    folder.look(&Work::everything());
    assert!(hosts(&folder).contains(&"good.example".to_string()));
    folder.tree().findings().refused
}

/// A running file source, and its deliveries.
struct Stage {
    dir: TempDir,
    port: SourcePort,
    recorder: Arc<Recorder>,
}

impl Stage {
    async fn set(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("configs");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("a.yaml"), text).unwrap();
        let recorder = Arc::new(Recorder::default());
        let port = SourcePort {
            sink: recorder.clone(),
            board: Arc::new(SourceBoard::new("file:test".into())),
            stop: CancellationToken::new(),
            resync: Arc::default(),
            confirm: Arc::default(),
        };
        let source = FileSource::new(&root, Vec::new(), SourceSettings::default());
        tokio::spawn(source.run(port.clone()));
        let stage = Self { dir, port, recorder };
        stage.until(|told| !told.0.is_empty()).await;
        stage
    }

    fn root(&self) -> std::path::PathBuf {
        self.dir.path().join("configs")
    }

    /// Waits until the delivered content satisfies this.
    async fn until(&self, says: impl Fn(&(Vec<String>, usize)) -> bool) {
        self.recorder.until(says).await;
    }

    async fn until_state(&self, state: SourceState) {
        tokio::time::timeout(DEADLINE, self.port.board.until(|r| r.state == state)).await.unwrap();
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.port.stop.cancel();
    }
}
