//! The file source's task: waits for an event, looks at the folder, delivers the change.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;

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
    sources::{
        Change, Findings, FindingsLog, Source, SourceId, SourcePort,
        delivery::{Delivery, Request, Status},
    },
};

/// The interval of looks at a folder without events.
const POLL: Duration = Duration::from_secs(1);
/// The interval of heartbeats during a long look.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// After this time a look gives no more heartbeats, and the source is restarted.
const LONGEST_LOOK: Duration = Duration::from_secs(600);

/// Most files that are named as not parsed yet.
const MOST_NAMED: usize = 100;

/// A folder as a source.
#[derive(Debug)]
pub struct FileSource {
    id: SourceId,
    cluster: Arc<str>,
    root: PathBuf,
    skip: Vec<PathBuf>,
    settings: SourceSettings,
    /// The objects that were delivered last, if any were; a restart begins with them.
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
        let before = self.in_force.lock().clone();
        let (delivered, in_force) = (before.is_some(), before.unwrap_or_default());
        let base = Origin { source: self.id.clone(), cluster: self.cluster.clone(), ..Origin::default() };
        let disk = Disk::default();
        let folder = Folder::new(base, self.root.clone(), self.skip.clone(), &self.settings, in_force).on(disk.clone());
        let events = self.settings.watch == WatchMode::Events;
        let (watcher, watched) = Watcher::new(events, self.settings.settle);
        let log = FindingsLog::new(self.id.clone());
        let run = Run {
            id: self.id.clone(),
            memory: self.in_force.clone(),
            disk,
            parsed: folder.parsed(),
            work: Some(Workplace { folder, watched, log }),
            watcher,
            rescan: if events { self.settings.rescan } else { POLL },
            looked_around: Instant::now(),
            delivery: Delivery::new(self.id.clone(), port, delivered),
        };
        Box::pin(run.run())
    }
}

struct Run {
    id: SourceId,
    memory: Arc<Mutex<Option<Arc<InForce>>>>,
    disk: Disk,
    /// A long file was parsed.
    parsed: Arc<Notify>,
    /// Taken out while a blocking thread works on it.
    work: Option<Workplace>,
    watcher: Watcher,
    rescan: Duration,
    /// The time of the last look at everything.
    looked_around: Instant,
    delivery: Delivery,
}

/// The state that blocking threads work on.
struct Workplace {
    folder: Folder,
    watched: Watched,
    log: FindingsLog,
}

/// The result of a look.
struct Looked {
    changes: Vec<Change>,
    findings: Option<Arc<Findings>>,
    held: Vec<String>,
    kept: Vec<String>,
}

impl Workplace {
    /// Looks, watches the folders that were found, and logs new findings.
    fn look(&mut self, work: &Work) -> Looked {
        let mut look = self.folder.look(work);
        let mut changes = vec![look.change];
        if self.watched.set(self.folder.watch()) {
            // A folder is watched only from now on: one more look finds the changes before that.
            let again = self.folder.look(&Work { everything: true, ..work.clone() });
            look.documents_changed |= again.documents_changed;
            changes.push(again.change);
            self.watched.set(self.folder.watch());
        }
        let tree = self.folder.tree();
        if look.documents_changed {
            self.log.log(tree.findings());
        }
        Looked {
            changes,
            findings: look.documents_changed.then(|| self.log.last().clone()),
            held: tree.held().iter().map(ToString::to_string).collect(),
            kept: tree.kept().iter().map(ToString::to_string).collect(),
        }
    }
}

/// The reason why the task wakes.
enum Wake {
    Asked(Request),
    Look(Work),
}

impl Run {
    async fn run(mut self) -> anyhow::Result<()> {
        let mut work = Work::everything();
        loop {
            let first = !self.delivery.is_delivered();
            if work.everything && !work.paths.is_empty() {
                // Files that are known to have changed do not wait for a look at all the others.
                self.take_in(Work { everything: false, ..work.clone() }).await?;
            }
            let (everything, began) = (work.everything, Instant::now());
            if everything {
                self.looked_around = began;
            }
            self.take_in(work).await?;
            if everything {
                self.watcher.looked_around(began.elapsed());
            }
            if first && self.delivery.is_delivered() {
                self.log_folder();
            }
            work = match self.wait().await {
                Wake::Asked(Request::Stop) => return Ok(()),
                Wake::Look(work) => work,
                Wake::Asked(Request::Resync) => {
                    self.delivery.owe_full();
                    Work::default()
                }
                Wake::Asked(Request::Confirm) => {
                    self.work.iter_mut().for_each(|work| work.folder.confirm());
                    Work::default()
                }
            };
        }
    }

    /// Looks, and delivers the changes.
    async fn take_in(&mut self, work: Work) -> anyhow::Result<()> {
        let looked = self.look(work).await?;
        for change in looked.changes {
            self.deliver(change).await;
        }
        self.report(looked.findings, looked.held, looked.kept);
        Ok(())
    }

    async fn wait(&self) -> Wake {
        let rescan = self.looked_around + self.rescan;
        if rescan <= Instant::now() && !self.delivery.is_stopped() {
            // Events that never end do not put it off.
            return Wake::Look(Work::everything());
        }
        let due = self.work.as_ref().and_then(|work| work.folder.next_due());
        let retry = self.delivery.retry_at(Instant::now()).filter(|_| self.is_deliverable());
        let (at, work) = match due.into_iter().chain(retry).min() {
            Some(soon) if soon < rescan => (soon, Work::default()),
            _ => (rescan, Work::everything()),
        };
        tokio::select! {
            biased;
            request = self.delivery.request() => Wake::Asked(request),
            work = self.watcher.next() => Wake::Look(work),
            () = self.disk.answered() => Wake::Look(Work::everything()),
            () = self.parsed.notified() => Wake::Look(Work::default()),
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
            // Parsing may take its time, up to a bound.
            match tokio::time::timeout(HEARTBEAT, &mut look).await {
                Ok(looked) => break looked??,
                Err(_) if began.elapsed() < LONGEST_LOOK => self.delivery.board().beat(),
                Err(_) => {}
            }
        };
        self.work = Some(place);
        Ok(looked)
    }

    /// Whether the content is known: a folder that was never listed is not an empty one.
    fn is_deliverable(&self) -> bool {
        self.work.as_ref().is_some_and(|work| self.delivery.is_delivered() || !work.folder.is_out_of_reach())
    }

    async fn deliver(&mut self, change: Change) {
        if !self.is_deliverable() {
            return;
        }
        let Some(Workplace { folder, .. }) = &self.work else { return };
        let in_force = folder.tree().in_force();
        if self.delivery.send(change, || in_force.values().cloned().collect()).await {
            *self.memory.lock() = Some(in_force.clone());
        }
    }

    fn report(&self, findings: Option<Arc<Findings>>, held: Vec<String>, kept: Vec<String>) {
        let Some(Workplace { folder, watched, .. }) = &self.work else { return };
        let trouble = folder.trouble().or(watched.problem()).unwrap_or_default();
        let status = Status {
            objects: folder.tree().in_force().len(),
            is_stale: folder.trouble().is_some(),
            trouble: trouble.to_string(),
            held,
            kept,
            findings,
        };
        let unparsed = folder.unparsed().take(MOST_NAMED).map(|path| path.display().to_string()).collect();
        if self.delivery.report(status, |report| report.unparsed = unparsed) {
            tracing::warn!(source = &*self.id, error = trouble, "config folder not in sync");
        }
    }

    fn log_folder(&self) {
        let Some(Workplace { folder, log, .. }) = &self.work else { return };
        let (files, findings) = (folder.tree().paths().count(), log.last());
        let (refused, of_other_kinds) = (findings.count_refused(), findings.ignored.len() + findings.more.ignored);
        tracing::info!(source = &*self.id, files, refused, of_other_kinds, "folder read");
    }
}
