//! The running sources of one cluster, and their deliveries.

use std::{
    collections::BTreeMap,
    fs,
    future::ready,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use pilothouse::{
    model::{Config, ConfigKey, Interrupted, Kind, Mesh},
    settings::{KubeAccess, KubeSettings},
    sources::{
        Applied, Change, ConfigSink, Source, SourceBatch, SourceBoard, SourceId, SourcePort, SourceReport,
        kube::{Cluster, FeedReport, Group, KubeSource},
    },
};
use tempfile::TempDir;
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Time that a test waits for an expected change.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Objects by source and key.
type Held = BTreeMap<(SourceId, ConfigKey), Arc<Config>>;

/// Keeps the content that sources deliver, and the number of deletions.
#[derive(Default)]
pub struct Recorder {
    /// The content that an earlier process saved.
    saved: Vec<Arc<Config>>,
    held: Mutex<(Held, usize)>,
    came: Notify,
}

impl ConfigSink for Recorder {
    fn apply(&self, batch: SourceBatch) -> BoxFuture<'static, Result<Applied, Interrupted>> {
        let mut held = self.held.lock().unwrap();
        let upserts = match batch.change {
            Change::Full(all) => {
                let before = held.0.len();
                held.0.retain(|(source, _), _| *source != batch.source);
                let gone = before - held.0.len();
                held.1 += gone.saturating_sub(all.len());
                all
            }
            Change::Delta { upserts, deletes } => {
                held.1 += deletes.len();
                deletes.into_iter().for_each(|k| drop(held.0.remove(&(batch.source.clone(), k))));
                upserts
            }
        };
        held.0.extend(upserts.into_iter().map(|c| ((batch.source.clone(), c.key()), c)));
        drop(held);
        self.came.notify_waiters();
        Box::pin(async { Ok(Applied::default()) })
    }

    fn saved(&self, _: &SourceId) -> BoxFuture<'static, Vec<Arc<Config>>> {
        Box::pin(ready(self.saved.clone()))
    }
}

/// Running sources.
pub struct Stage {
    pub cluster: Arc<Cluster>,
    pub recorder: Arc<Recorder>,
    pub mesh: watch::Sender<Arc<Mesh>>,
    sources: Vec<(Arc<KubeSource>, SourcePort, JoinHandle<anyhow::Result<()>>)>,
    _dir: TempDir,
}

/// A kubeconfig for a server in plain text.
pub fn kubeconfig(dir: &Path, url: &str) -> std::path::PathBuf {
    let path = dir.join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {{cluster: c, user: u}}\n\
         clusters:\n- name: c\n  cluster: {{server: \"{url}\"}}\nusers:\n- name: u\n  user: {{}}\n"
    );
    fs::write(&path, text).unwrap();
    path
}

/// Settings for a server that fails: everything is quick.
pub fn quick(access: KubeAccess) -> KubeSettings {
    KubeSettings {
        list_timeout: Duration::from_secs(2),
        first_pause: Duration::from_millis(5),
        longest_pause: Duration::from_millis(200),
        refused_pause: Duration::from_millis(300),
        refused_patience: Duration::ZERO,
        deletion_hold: Duration::ZERO,
        ..KubeSettings::new(access)
    }
}

impl Stage {
    /// Starts these sources on a server in plain text.
    pub fn set(url: &str, groups: &[Group], change: impl FnOnce(&mut KubeSettings)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = kubeconfig(dir.path(), url);
        Self::with_kubeconfig(dir, &path, groups, change)
    }

    /// Starts these sources in a new process, which finds the content of an earlier one saved.
    pub fn after(earlier: Self, url: &str, groups: &[Group]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let settings = quick(KubeAccess::Kubeconfig { path: kubeconfig(dir.path(), url), context: None });
        let mesh = watch::Sender::new(Arc::new(Mesh::default()));
        let cluster = Cluster::new("test", settings, mesh.subscribe());
        let saved = earlier.recorder.held.lock().unwrap().0.values().cloned().collect();
        Self::run(dir, cluster, mesh, groups, saved)
    }

    /// Starts these sources on the server of a kubeconfig.
    pub fn with_kubeconfig(
        dir: TempDir,
        kubeconfig: &Path,
        groups: &[Group],
        change: impl FnOnce(&mut KubeSettings),
    ) -> Self {
        let mut settings = quick(KubeAccess::Kubeconfig { path: kubeconfig.to_path_buf(), context: None });
        change(&mut settings);
        let mesh = watch::Sender::new(Arc::new(Mesh::default()));
        let cluster = Cluster::new("test", settings, mesh.subscribe());
        Self::run(dir, cluster, mesh, groups, Vec::new())
    }

    /// Starts these sources on a remote cluster.
    pub fn remote(url: &str, groups: &[Group]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let settings = quick(KubeAccess::Kubeconfig { path: kubeconfig(dir.path(), url), context: None });
        let mesh = watch::Sender::new(Arc::new(Mesh::default()));
        let cluster = Cluster::remote("test", settings, mesh.subscribe());
        Self::run(dir, cluster, mesh, groups, Vec::new())
    }

    fn run(
        dir: TempDir,
        cluster: Arc<Cluster>,
        mesh: watch::Sender<Arc<Mesh>>,
        groups: &[Group],
        saved: Vec<Arc<Config>>,
    ) -> Self {
        let recorder = Arc::new(Recorder { saved, ..Recorder::default() });
        let mut stage = Self { cluster, recorder, mesh, sources: Vec::new(), _dir: dir };
        groups.iter().for_each(|group| stage.add(*group));
        stage
    }

    fn add(&mut self, group: Group) {
        let source = Arc::new(KubeSource::new(self.cluster.clone(), group));
        let port = SourcePort {
            sink: self.recorder.clone(),
            board: Arc::new(SourceBoard::new(source.id())),
            stop: CancellationToken::new(),
            resync: Arc::default(),
            confirm: Arc::default(),
        };
        let task = tokio::spawn(source.run(port.clone()));
        self.sources.push((source, port, task));
    }

    /// Ends the run of every source and begins a new one, as its actor does.
    pub fn restart(&mut self) {
        for (source, port, task) in &mut self.sources {
            task.abort();
            *task = tokio::spawn(source.run(port.clone()));
        }
    }

    /// Asks every source to send everything again.
    pub fn resync(&self) {
        self.sources.iter().for_each(|(_, port, _)| port.resync.notify_one());
    }

    /// Objects in force, as `Kind/namespace/name`, with the hash of their content.
    pub fn content(&self) -> BTreeMap<String, u64> {
        self.recorder.held.lock().unwrap().0.iter().map(|((_, k), c)| (k.to_string(), c.stamp)).collect()
    }

    /// The object of this key.
    pub fn object(&self, key: &str) -> Option<Arc<Config>> {
        let held = self.recorder.held.lock().unwrap();
        held.0.iter().find(|((_, k), _)| k.to_string() == key).map(|(_, c)| c.clone())
    }

    /// The objects of one kind.
    pub fn of_kind(&self, kind: Kind) -> Vec<Arc<Config>> {
        let held = self.recorder.held.lock().unwrap();
        held.0.iter().filter(|((_, k), _)| k.kind == kind).map(|(_, c)| c.clone()).collect()
    }

    /// Names of the objects in force.
    pub fn names(&self) -> Vec<String> {
        self.content().into_keys().filter(|k| !k.starts_with("Namespace/")).collect()
    }

    /// The number of objects that were deleted so far.
    pub fn deleted(&self) -> usize {
        self.recorder.held.lock().unwrap().1
    }

    /// The report of each source.
    pub fn reports(&self) -> Vec<SourceReport> {
        self.sources.iter().map(|(_, port, _)| port.board.read()).collect()
    }

    /// The state of a watched resource.
    pub fn feed(&self, resource: &str) -> FeedReport {
        self.reports().into_iter().flat_map(|r| r.feeds).find(|f| f.resource == resource).unwrap_or_default()
    }

    /// Waits until the delivered content, or a report, says this.
    pub async fn until(&self, what: &str, says: impl Fn(&Self) -> bool) {
        let wait = async {
            while !says(self) {
                let mut came = std::pin::pin!(self.recorder.came.notified());
                came.as_mut().enable();
                let _ = tokio::time::timeout(Duration::from_millis(20), came).await;
            }
        };
        let waited = tokio::time::timeout(DEADLINE, wait).await;
        assert!(waited.is_ok(), "{what} does not come: {:?}\n{:#?}", self.names(), self.reports());
    }

    /// Waits until these are the objects in force.
    pub async fn until_names(&self, names: &[&str]) {
        self.until(&format!("{names:?}"), |s| s.names() == names).await;
    }

    /// Waits until the content equals that of a run that begins now.
    pub async fn until_like_a_cold_run(&self, cold: &Self) {
        cold.until("the cold run", |c| c.reports().iter().all(|r| r.state == pilothouse::sources::SourceState::Synced))
            .await;
        self.until("the content of a cold run", |s| s.content() == cold.content()).await;
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.sources.iter().for_each(|(_, port, task)| {
            port.stop.cancel();
            task.abort();
        });
    }
}
