//! The file source against bad input and hostile folders: for each fault, nothing crashes, the other objects stay in force,
//! and a person is told what is wrong and where.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    sync::Arc,
};

use pilothouse::{
    model::Origin,
    settings::SourceSettings,
    sources::{
        Change, Refused, Source, SourceBoard, SourcePort, SourceState,
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
    Folder::new(base, root.to_path_buf(), Vec::new(), &SourceSettings::default(), Arc::<InForce>::default())
}

fn hosts(folder: &Folder) -> Vec<String> {
    let mut hosts: Vec<String> =
        folder.tree().in_force().values().map(|c| c.service_entry().unwrap().hosts[0].clone()).collect();
    hosts.sort();
    hosts
}

/// A folder with one good file and this one, looked at once: what was refused, after checking that the good one is in force.
fn refused_beside_a_good_one(bytes: &[u8]) -> Vec<Refused> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("good.yaml"), entry("good", "good.example")).unwrap();
    fs::write(dir.path().join("bad.yaml"), bytes).unwrap();
    let mut folder = folder_of(dir.path());
    folder.look(&Work::Everything);
    assert!(hosts(&folder).contains(&"good.example".to_string()));
    folder.tree().findings().refused
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_string();
    for i in 1..20 {
        bomb.push_str(&format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(",")));
    }
    let refused = refused_beside_a_good_one(bomb.as_bytes());
    assert_eq!(refused.len(), 1);
    assert!(refused[0].reason.contains("limits"), "{}", refused[0]);
}

#[test]
fn ten_thousand_levels_are_refused() {
    let block: String = (0..10_000).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
    for text in [block, "[".repeat(10_000), format!("{{\"a\":{}", "[".repeat(10_000)), "{a: ".repeat(10_000)] {
        let refused = refused_beside_a_good_one(text.as_bytes());
        assert!(refused[0].reason.contains("deep"), "{}", refused[0]);
    }
}

#[test]
fn a_file_of_a_hundred_megabytes_is_refused_unread() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("good.yaml"), entry("good", "good.example")).unwrap();
    fs::File::create(dir.path().join("huge.yaml")).unwrap().set_len(100 << 20).unwrap();
    let mut folder = folder_of(dir.path());
    folder.look(&Work::Everything);
    assert_eq!(hosts(&folder), ["good.example"]);
    assert!(folder.tree().findings().refused[0].reason.contains("longer than"));
}

#[test]
fn bytes_that_are_not_utf8_are_refused_with_their_line() {
    let refused = refused_beside_a_good_one(b"a: 1\nb: \xc3\x28\n");
    assert_eq!(refused[0].line, 2);
    assert!(refused[0].reason.contains("UTF-8"), "{}", refused[0]);
}

#[test]
fn a_key_that_comes_twice_is_refused_at_its_place() {
    let text = entry("bad", "bad.example").replace("  resolution: DNS", "  resolution: DNS\n  resolution: NONE");
    let refused = refused_beside_a_good_one(text.as_bytes());
    assert_eq!((refused[0].line, refused[0].column), (15, 3), "{}", refused[0]);
    assert!(refused[0].reason.contains("duplicate") && refused[0].name == "bad", "{}", refused[0]);
}

#[test]
fn a_wrong_type_is_refused_at_its_place_and_by_name() {
    let text = entry("bad", "bad.example").replace("number: 80", "number: eighty");
    let refused = refused_beside_a_good_one(text.as_bytes());
    assert_eq!(refused.len(), 1);
    assert_eq!((refused[0].kind.as_str(), refused[0].name.as_str(), refused[0].line), ("ServiceEntry", "bad", 11));
    assert!(refused[0].to_string().contains("bad.yaml:11:"), "{}", refused[0]);
}

#[test]
fn an_unknown_field_is_taken_with_a_warning_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example").replace("  resolution:", "  resolutoin:")).unwrap();
    let mut folder = folder_of(dir.path());
    folder.look(&Work::Everything);
    let findings = folder.tree().findings();
    let warnings: Vec<&str> = findings.warned.iter().map(|w| w.warning.as_str()).collect();
    assert!(warnings.contains(&"unknown field spec.resolutoin"), "{warnings:?} {:?}", findings.refused);
}

#[test]
fn a_thousand_truncations_lose_nothing_that_was_not_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    let whole = entries(8);
    fs::write(&path, &whole).unwrap();
    let mut folder = folder_of(dir.path());
    folder.look(&Work::Everything);
    let names = |folder: &Folder| {
        let mut names: Vec<String> = folder.tree().in_force().keys().map(|k| k.name.to_string()).collect();
        names.sort();
        names
    };
    let all = names(&folder);
    for i in 0..1000 {
        let cut = &whole[..whole.len() * i / 1000];
        fs::write(&path, cut).unwrap();
        folder.look(&Work::Everything);
        let left = names(&folder);
        let intact = cut.matches("resolution: DNS\n").count();
        assert!(left.len() >= intact, "after a cut at {i}/1000: {left:?}");
        let unreadable = folder.tree().findings().refused.iter().any(|r| r.reason.contains("missing"));
        assert!(!unreadable || left == all, "after a cut at {i}/1000: {left:?}");
        fs::write(&path, &whole).unwrap();
        folder.look(&Work::Everything);
        assert_eq!(names(&folder), all, "after a cut at {i}/1000");
        assert!(folder.tree().findings().refused.is_empty());
    }
}

#[test]
fn a_thousand_swaps_of_a_config_map_are_each_seen() {
    let dir = tempfile::tempdir().unwrap();
    let mut folder = folder_of(dir.path());
    for i in 0..1000 {
        swap_config_map(dir.path(), i);
        folder.look(&Work::Everything);
        assert_eq!(hosts(&folder), [format!("v{i}.example")]);
    }
}

/// What the kubelet does: a new folder beside the old one, and one link renamed.
fn swap_config_map(root: &Path, version: usize) {
    let data = format!("..{version}");
    fs::create_dir(root.join(&data)).unwrap();
    fs::write(root.join(&data).join("a.yaml"), entry("a", &format!("v{version}.example"))).unwrap();
    symlink(&data, root.join("..data_tmp")).unwrap();
    fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    if version == 0 {
        symlink("..data/a.yaml", root.join("a.yaml")).unwrap();
    } else {
        fs::remove_dir_all(root.join(format!("..{}", version - 1))).unwrap();
    }
}

#[test]
fn what_may_not_be_read_any_more_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    fs::write(&path, entry("a", "a.example")).unwrap();
    let mut folder = folder_of(dir.path());
    folder.look(&Work::Everything);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&path).is_ok() {
        // The superuser may read anything; a link to itself is what even it cannot read.
        fs::remove_file(&path).unwrap();
        symlink("a.yaml", &path).unwrap();
    }
    let look = folder.look(&Work::Everything);
    assert!(look.change.is_empty());
    assert_eq!(hosts(&folder), ["a.example"]);
    assert_eq!(folder.tree().findings().refused.len(), 1);
    assert!(folder.trouble().is_some() || !folder.tree().kept().is_empty());
}

/// A file source that runs, and what it delivered.
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

    /// Waits until what was delivered says this.
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

#[tokio::test]
async fn the_save_sequences_of_editors_end_in_the_saved_text_and_delete_nothing() {
    let stage = Stage::set(&entry("a", "v0.example")).await;
    let path = stage.root().join("a.yaml");
    let saves: [(&str, Box<dyn Fn(&str)>); 4] = [
        ("in place", Box::new(|text| fs::write(&path, text).unwrap())),
        (
            "beside, then renamed",
            Box::new(|text| {
                fs::write(path.with_extension("yaml~new"), text).unwrap();
                fs::rename(path.with_extension("yaml~new"), &path).unwrap();
            }),
        ),
        (
            "renamed to a backup, then written",
            Box::new(|text| {
                fs::rename(&path, path.with_extension("yaml~")).unwrap();
                fs::write(&path, text).unwrap();
                fs::remove_file(path.with_extension("yaml~")).unwrap();
            }),
        ),
        (
            "removed, then written",
            Box::new(|text| {
                fs::remove_file(&path).unwrap();
                fs::write(&path, text).unwrap();
            }),
        ),
    ];
    for (round, (name, save)) in saves.iter().cycle().take(20).enumerate() {
        let host = format!("v{}.example", round + 1);
        save(&entry("a", &host));
        stage.until(|told| told.0 == [host.clone()]).await;
        assert_eq!(stage.recorder.told().1, 0, "{name}");
    }
}

#[tokio::test]
async fn swaps_of_a_config_map_in_a_row_end_in_the_last_one() {
    let stage = Stage::set(&entry("other", "other.example")).await;
    fs::remove_file(stage.root().join("a.yaml")).unwrap();
    for i in 0..1000 {
        swap_config_map(&stage.root(), i);
    }
    stage.until(|told| told.0.contains(&"v999.example".to_string())).await;
}

#[tokio::test]
async fn a_folder_that_is_removed_and_brought_back_keeps_its_objects_meanwhile() {
    let stage = Stage::set(&entries(20)).await;
    fs::remove_dir_all(stage.root()).unwrap();
    stage.until_state(SourceState::Stale).await;
    assert_eq!(stage.recorder.told().0.len(), 20);
    fs::create_dir(stage.root()).unwrap();
    fs::write(stage.root().join("a.yaml"), entries(20) + &entry("new", "new.example")).unwrap();
    stage.until(|told| told.0.len() == 21).await;
    stage.until_state(SourceState::Synced).await;
    assert_eq!(stage.recorder.told().1, 0);
}

#[tokio::test]
async fn an_emptied_folder_is_held_until_it_is_confirmed() {
    let stage = Stage::set(&entries(20)).await;
    fs::remove_file(stage.root().join("a.yaml")).unwrap();
    stage.until_state(SourceState::Holding).await;
    assert_eq!(stage.recorder.told(), (stage.recorder.told().0, 0));
    assert_eq!(stage.port.board.read().held_deletions.len(), 20);
    stage.port.confirm.notify_one();
    stage.until(|told| told.0.is_empty() && told.1 == 20).await;
    stage.until_state(SourceState::Synced).await;
}

#[tokio::test]
async fn one_object_of_many_goes_at_once() {
    let stage = Stage::set(&entries(20)).await;
    fs::write(stage.root().join("a.yaml"), entries(19)).unwrap();
    stage.until(|told| told.1 == 1 && told.0.len() == 19).await;
}

#[tokio::test]
async fn a_resync_sends_everything_again() {
    let stage = Stage::set(&entries(3)).await;
    stage.port.resync.notify_one();
    let fulls =
        |r: &Recorder| r.batches().iter().filter(|b| matches!(&b.change, Change::Full(c) if c.len() == 3)).count();
    let recorder = stage.recorder.clone();
    stage.until(|_| fulls(&recorder) == 2).await;
}

#[test]
fn of_a_remote_cluster_services_and_workloads_count_and_configuration_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let service = "apiVersion: v1\nkind: Service\nmetadata:\n  name: s\n  namespace: shop\nspec: {}\n";
    fs::write(dir.path().join("all.yaml"), format!("{service}{}", entry("e", "e.example"))).unwrap();
    for (cluster, expected) in [("", vec!["ServiceEntry/shop/e", "Service/shop/s"]), ("west", vec!["Service/shop/s"])] {
        let mut folder = folder_of_cluster(dir.path(), cluster);
        folder.look(&Work::Everything);
        let mut keys: Vec<String> = folder.tree().in_force().keys().map(ToString::to_string).collect();
        keys.sort_by_key(|k| !k.starts_with("ServiceEntry"));
        assert_eq!(keys, expected);
        assert!(folder.tree().in_force().values().all(|c| *c.origin.cluster == *cluster));
    }
}
