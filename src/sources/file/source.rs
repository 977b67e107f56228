//! The file source's task: waits for something to do, looks, and hands over what changed.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context;
use futures::future::BoxFuture;

use super::{
    folder::{Folder, Look},
    settle::Work,
    tree::InForce,
    watch::Watcher,
};
use crate::{
    model::Origin,
    runtime::catch,
    settings::{SourceSettings, WatchMode},
    sources::{Change, Findings, Source, SourceBatch, SourceId, SourcePort, SourceState},
    telemetry::count_rejected,
};

/// How often a folder is looked at when there are no events.
const POLL: Duration = Duration::from_secs(1);
/// Pause before a full snapshot is tried again when nobody asks for it.
const RETRY: Duration = Duration::from_secs(1);

/// A folder as a source.
#[derive(Debug)]
pub struct FileSource {
    id: SourceId,
    cluster: Arc<str>,
    root: PathBuf,
    skip: Vec<PathBuf>,
    settings: SourceSettings,
    /// What was published last, if anything was; a restart begins with it.
    in_force: Arc<Mutex<Option<Arc<InForce>>>>,
}

impl FileSource {
    /// A folder as a source. `skip` are files in it that hold something else.
    #[must_use]
    pub fn new(root: &Path, skip: Vec<PathBuf>, settings: SourceSettings) -> Self {
        let id = format!("file:{}", root.display()).into();
        Self { id, cluster: "".into(), root: root.to_path_buf(), skip, settings, in_force: Arc::default() }
    }

    /// The folder holds the objects of another cluster.
    #[must_use]
    pub fn of_cluster(self, cluster: &str) -> Self {
        Self { cluster: cluster.into(), id: format!("{}@{cluster}", self.id).into(), ..self }
    }
}

impl Source for FileSource {
    fn id(&self) -> SourceId {
        self.id.clone()
    }

    fn run(&self, port: SourcePort) -> BoxFuture<'static, anyhow::Result<()>> {
        let before = self.in_force.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (delivered, in_force) = (before.is_some(), before.unwrap_or_default());
        let base = Origin { source: self.id.clone(), cluster: self.cluster.clone(), ..Origin::default() };
        let folder = Folder::new(base, self.root.clone(), self.skip.clone(), &self.settings, in_force);
        let events = self.settings.watch == WatchMode::Events;
        let run = Run {
            id: self.id.clone(),
            memory: self.in_force.clone(),
            folder: Some(folder),
            watcher: Watcher::new(events, self.settings.settle),
            rescan: if events { self.settings.rescan } else { POLL },
            findings: Findings::default(),
            full: true,
            delivered,
            port,
        };
        Box::pin(run.run())
    }
}

struct Run {
    id: SourceId,
    memory: Arc<Mutex<Option<Arc<InForce>>>>,
    /// Taken out while a blocking thread works on it.
    folder: Option<Folder>,
    watcher: Watcher,
    rescan: Duration,
    findings: Findings,
    /// The next batch must be a full snapshot.
    full: bool,
    /// The store has had the folder's content once.
    delivered: bool,
    port: SourcePort,
}

/// Why the task wakes.
enum Wake {
    Stop,
    Look(Work),
    Resync,
    Confirm,
}

impl Run {
    async fn run(mut self) -> anyhow::Result<()> {
        let mut work = Work::Everything;
        loop {
            let look = self.look(work).await?;
            if self.watch_what_was_found() {
                // A folder is watched only from now on: what happened in it meanwhile is found by one more look.
                let again = self.look(Work::Everything).await?;
                self.report(again.documents_changed || look.documents_changed);
                self.hand_over(look.change).await;
                self.hand_over(again.change).await;
            } else {
                self.report(look.documents_changed);
                self.hand_over(look.change).await;
            }
            work = match self.wait().await {
                Wake::Stop => return Ok(()),
                Wake::Look(work) => work,
                Wake::Resync => {
                    self.full = true;
                    Work::Paths(Vec::new())
                }
                Wake::Confirm => {
                    self.folder.as_mut().into_iter().for_each(Folder::confirm);
                    Work::Paths(Vec::new())
                }
            };
        }
    }

    async fn wait(&self) -> Wake {
        let held_until = self.folder.as_ref().and_then(|f| f.tree().held_until());
        let rescan = Instant::now() + self.rescan;
        let retry = self.full.then(|| Instant::now() + RETRY);
        let (at, work) = match (held_until.into_iter().chain(retry).min(), rescan) {
            (Some(soon), rescan) if soon < rescan => (soon, Work::Paths(Vec::new())),
            (_, rescan) => (rescan, Work::Everything),
        };
        tokio::select! {
            biased;
            () = self.port.stop.cancelled() => Wake::Stop,
            () = self.port.resync.notified() => Wake::Resync,
            () = self.port.confirm.notified() => Wake::Confirm,
            work = self.watcher.next() => Wake::Look(work),
            () = tokio::time::sleep_until(at.into()) => Wake::Look(work),
        }
    }

    async fn look(&mut self, work: Work) -> anyhow::Result<Look> {
        let mut folder = self.folder.take().context("the folder was lost in a fault")?;
        let (folder, look) = tokio::task::spawn_blocking(move || {
            catch(|| {
                let look = folder.look(&work);
                (folder, look)
            })
        })
        .await??;
        self.folder = Some(folder);
        Ok(look)
    }

    fn watch_what_was_found(&mut self) -> bool {
        let Some(folder) = &self.folder else { return false };
        self.watcher.set(folder.watch())
    }

    /// Hands a change over. While a full snapshot is owed, deltas are part of it.
    async fn hand_over(&mut self, change: Change) {
        let Some(folder) = &self.folder else { return };
        if !self.delivered && folder.is_out_of_reach() {
            // Nothing is known of it, which is not to say that it is empty.
            return;
        }
        let change =
            if self.full { Change::Full(folder.tree().in_force().values().cloned().collect()) } else { change };
        if change.is_empty() {
            return;
        }
        let (batch, in_force) = (SourceBatch { source: self.id.clone(), change }, folder.tree().in_force().clone());
        match self.port.sink.apply(batch).await {
            Ok(_) => {
                self.full = false;
                *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = Some(in_force);
                if !std::mem::replace(&mut self.delivered, true) {
                    self.report(false);
                }
            }
            Err(interrupted) => {
                tracing::warn!(source = &*self.id, error = %interrupted, "batch not taken, a full snapshot follows");
                self.full = true;
            }
        }
    }

    /// Says how the source is. Findings are gathered only when documents changed.
    fn report(&mut self, documents_changed: bool) {
        let Some(folder) = &self.folder else { return };
        let tree = folder.tree();
        if documents_changed {
            let findings = tree.findings();
            tell_new(&self.id, &self.findings, &findings);
            self.findings = findings;
        }
        let trouble = folder.trouble().or(self.watcher.problem()).unwrap_or_default();
        self.port.board.write(|report| {
            // Before the first delivery whoever else put content in force says how the source is.
            if self.delivered {
                report.state = match () {
                    () if !tree.held().is_empty() => SourceState::Holding,
                    () if folder.trouble().is_some() => SourceState::Stale,
                    () => SourceState::Synced,
                };
                report.objects = tree.in_force().len();
            }
            if report.last_error != trouble {
                trouble.clone_into(&mut report.last_error);
                if !trouble.is_empty() {
                    tracing::warn!(source = &*self.id, trouble, "source is in trouble");
                }
            }
            if report.held_deletions.is_empty() && !tree.held().is_empty() {
                tracing::warn!(source = &*self.id, objects = tree.held().len(), "mass deletion held back");
            }
            report.held_deletions = tree.held().iter().map(ToString::to_string).collect();
            report.kept = tree.kept().iter().map(ToString::to_string).collect();
            if documents_changed {
                report.findings.clone_from(&self.findings);
            }
        });
        self.port.board.beat();
    }
}

/// Logs and counts what was not there before.
fn tell_new(source: &SourceId, before: &Findings, now: &Findings) {
    for refused in now.refused.iter().filter(|r| !before.refused.contains(r)) {
        count_rejected(&refused.kind, &refused.name);
        tracing::warn!(source = &**source, "{refused}");
    }
    for warned in now.warned.iter().filter(|w| before.warned.binary_search(w).is_err()) {
        tracing::warn!(source = &**source, "{warned}");
    }
}
