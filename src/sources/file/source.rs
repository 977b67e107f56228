//! The file source's task: waits for something to do, looks, and hands over what changed.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context;
use futures::future::BoxFuture;

use super::{
    disk::Disk,
    folder::Folder,
    settle::Work,
    tree::InForce,
    watch::{Watched, Watcher},
};
use crate::{
    model::Origin,
    runtime::catch,
    settings::{SourceSettings, WatchMode},
    sources::{Change, Findings, Source, SourceBatch, SourceId, SourcePort, SourceState, Teller},
};

/// How often a folder is looked at when there are no events.
const POLL: Duration = Duration::from_secs(1);
/// How often a look that takes long gives a sign of life.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// A look that takes longer gives none.
const LONGEST_LOOK: Duration = Duration::from_secs(600);
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
        let disk = Disk::default();
        let folder = Folder::new(base, self.root.clone(), self.skip.clone(), &self.settings, in_force).on(disk.clone());
        let events = self.settings.watch == WatchMode::Events;
        let (watcher, watched) = Watcher::new(events, self.settings.settle);
        let teller = Teller::new(self.id.clone());
        let run = Run {
            id: self.id.clone(),
            memory: self.in_force.clone(),
            disk,
            work: Some(Workplace { folder, watched, teller }),
            watcher,
            rescan: if events { self.settings.rescan } else { POLL },
            looked_around: Instant::now(),
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
    disk: Disk,
    /// Taken out while a blocking thread works on it.
    work: Option<Workplace>,
    watcher: Watcher,
    rescan: Duration,
    /// When everything was looked at last.
    looked_around: Instant,
    /// The next batch must be a full snapshot.
    full: bool,
    /// The store has had the folder's content once.
    delivered: bool,
    port: SourcePort,
}

/// What blocking threads work on.
struct Workplace {
    folder: Folder,
    watched: Watched,
    teller: Teller,
}

/// What a look brought.
struct Looked {
    changes: Vec<Change>,
    findings: Option<Arc<Findings>>,
    held: Vec<String>,
    kept: Vec<String>,
}

impl Workplace {
    /// Looks, watches what was found, and tells what is new.
    fn look(&mut self, work: &Work) -> Looked {
        let mut look = self.folder.look(work);
        let mut changes = vec![look.change];
        if self.watched.set(self.folder.watch()) {
            // A folder is watched only from now on: what happened in it meanwhile is found by one more look.
            let again = self.folder.look(&Work { everything: true, ..work.clone() });
            look.documents_changed |= again.documents_changed;
            changes.push(again.change);
            self.watched.set(self.folder.watch());
        }
        let tree = self.folder.tree();
        if look.documents_changed {
            self.teller.tell(tree.findings());
        }
        Looked {
            changes,
            findings: look.documents_changed.then(|| self.teller.told().clone()),
            held: tree.held().iter().map(ToString::to_string).collect(),
            kept: tree.kept().iter().map(ToString::to_string).collect(),
        }
    }
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
        let mut work = Work::everything();
        loop {
            if work.everything {
                self.looked_around = Instant::now();
            }
            let looked = self.look(work).await?;
            let changes = self.report(looked);
            for change in changes {
                self.hand_over(change).await;
            }
            work = match self.wait().await {
                Wake::Stop => return Ok(()),
                Wake::Look(work) => work,
                Wake::Resync => {
                    self.full = true;
                    Work::default()
                }
                Wake::Confirm => {
                    self.work.iter_mut().for_each(|work| work.folder.confirm());
                    Work::default()
                }
            };
        }
    }

    async fn wait(&self) -> Wake {
        let rescan = self.looked_around + self.rescan;
        if rescan <= Instant::now() && !self.port.stop.is_cancelled() {
            // Events that never end do not put it off.
            return Wake::Look(Work::everything());
        }
        let due = self.work.as_ref().and_then(|work| work.folder.next_due());
        let retry = self.full.then(|| Instant::now() + RETRY);
        let (at, work) = match due.into_iter().chain(retry).min() {
            Some(soon) if soon < rescan => (soon, Work::default()),
            _ => (rescan, Work::everything()),
        };
        tokio::select! {
            biased;
            () = self.port.stop.cancelled() => Wake::Stop,
            () = self.port.resync.notified() => Wake::Resync,
            () = self.port.confirm.notified() => Wake::Confirm,
            work = self.watcher.next() => Wake::Look(work),
            () = self.disk.answered() => Wake::Look(Work::everything()),
            () = tokio::time::sleep_until(at.into()) => Wake::Look(work),
        }
    }

    async fn look(&mut self, work: Work) -> anyhow::Result<Looked> {
        let mut place = self.work.take().context("the folder was lost in a fault")?;
        let mut look = tokio::task::spawn_blocking(move || {
            catch(|| {
                let looked = place.look(&work);
                (place, looked)
            })
        });
        let began = Instant::now();
        let (place, looked) = loop {
            // Much to parse takes its time; what takes longer than any parsing does is silence.
            match tokio::time::timeout(SIGN_OF_LIFE, &mut look).await {
                Ok(looked) => break looked??,
                Err(_) if began.elapsed() < LONGEST_LOOK => self.port.board.beat(),
                Err(_) => {}
            }
        };
        self.work = Some(place);
        Ok(looked)
    }

    /// Hands a change over. While a full snapshot is owed, deltas are part of it.
    async fn hand_over(&mut self, change: Change) {
        let Some(Workplace { folder, .. }) = &self.work else { return };
        if !self.delivered && folder.is_out_of_reach() {
            // Nothing is known of it, which is not to say that it is empty.
            return;
        }
        let change =
            if self.full { Change::Full(folder.tree().in_force().values().cloned().collect()) } else { change };
        if change.is_empty() {
            return;
        }
        let (upserts, deletes) = match &change {
            Change::Full(all) => (all.len(), 0),
            Change::Delta { upserts, deletes } => (upserts.len(), deletes.len()),
        };
        let (batch, in_force) = (SourceBatch { source: self.id.clone(), change }, folder.tree().in_force().clone());
        match self.port.sink.apply(batch).await {
            Ok(_) => {
                self.log(upserts, deletes);
                self.full = false;
                *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = Some(in_force);
                if !std::mem::replace(&mut self.delivered, true) {
                    self.report_state();
                }
            }
            Err(interrupted) => {
                tracing::warn!(source = &*self.id, error = %interrupted, "batch not taken, a full snapshot follows");
                self.full = true;
            }
        }
    }

    /// Says how the source is, and gives the changes that are to be handed over.
    fn report(&mut self, looked: Looked) -> Vec<Change> {
        let Looked { changes, findings, held, kept } = looked;
        self.port.board.write(|report| {
            if report.held_deletions.is_empty() && !held.is_empty() {
                tracing::warn!(source = &*self.id, objects = held.len(), "mass deletion held back");
            }
            (report.held_deletions, report.kept) = (held, kept);
            if let Some(findings) = findings {
                report.findings = findings;
            }
        });
        self.report_state();
        self.port.board.beat();
        changes
    }

    fn report_state(&self) {
        let Some(Workplace { folder, watched, .. }) = &self.work else { return };
        let trouble = folder.trouble().or(watched.problem()).unwrap_or_default();
        self.port.board.write(|report| {
            // Before the first delivery whoever else put content in force says how the source is.
            if self.delivered {
                report.state = match () {
                    () if !folder.tree().held().is_empty() => SourceState::Holding,
                    () if folder.trouble().is_some() => SourceState::Stale,
                    () => SourceState::Synced,
                };
                report.objects = folder.tree().in_force().len();
            }
            if report.last_error != trouble {
                trouble.clone_into(&mut report.last_error);
                if !trouble.is_empty() {
                    tracing::warn!(source = &*self.id, trouble, "source is in trouble");
                }
            }
        });
    }

    /// Says what was read: at first for everybody, later for those who ask for more.
    fn log(&self, upserts: usize, deletes: usize) {
        let Some(Workplace { folder, teller, .. }) = &self.work else { return };
        let (objects, refused) = (folder.tree().in_force().len(), teller.told().refused.len());
        let (files, kinds) = (folder.tree().paths().count(), teller.told().ignored.len());
        if self.delivered {
            tracing::debug!(source = &*self.id, upserts, deletes, objects, files, refused, "objects changed");
        } else {
            tracing::info!(source = &*self.id, objects, files, refused, of_other_kinds = kinds, "objects read");
        }
    }
}
