//! The file source's task: waits for an event, looks at the folder, delivers the change.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::{sync::Notify, task::JoinHandle};

use super::{
    disk::Disk,
    folder::{Folder, Look},
    scan::Listing,
    settle::Work,
    tree::InForce,
    watch::{Watched, Watcher},
};
use crate::{
    model::Origin,
    runtime::{Panicked, catch},
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

/// The interval of findings while very many files are being read: they are those of all files.
const REPORT: Duration = Duration::from_secs(1);
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
    in_force: Arc<Mutex<Option<InForce>>>,
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
            work: Some(Workplace { folder, watched, log, reported: None }),
            listing: None,
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
    memory: Arc<Mutex<Option<InForce>>>,
    disk: Disk,
    /// A long file was parsed.
    parsed: Arc<Notify>,
    /// Taken out while a blocking thread works on it.
    work: Option<Workplace>,
    /// A listing is under way.
    listing: Option<ListingBeside>,
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
    /// The time of the last findings.
    reported: Option<Instant>,
}

/// The result of a look.
struct Looked {
    changes: Vec<Change>,
    findings: Option<Arc<Findings>>,
    held: Vec<String>,
    kept: Vec<String>,
    /// The time that listings took.
    listing: Duration,
    /// A folder is watched only from now on: one more listing finds the changes before that.
    again: bool,
}

impl Workplace {
    /// Looks, watches the folders that were found, and logs new findings.
    fn look(&mut self, work: &Work) -> Looked {
        let first = self.folder.look(work);
        if !self.watched.set(self.folder.watch()) {
            return self.looked(vec![first], false);
        }
        // A folder is watched only from now on: one more look finds the changes before that.
        let second = self.folder.look(&Work { everything: true, ..work.clone() });
        self.watched.set(self.folder.watch());
        self.looked(vec![first, second], false)
    }

    /// Takes a listing that was made beside looks.
    fn take_listing(&mut self, listing: Listing) -> Looked {
        let look = self.folder.take_listing(listing);
        let again = self.watched.set(self.folder.watch());
        self.looked(vec![look], again)
    }

    fn looked(&mut self, looks: Vec<Look>, again: bool) -> Looked {
        let listing = looks.iter().map(|look| look.listing).sum();
        // While very many files are being read, their findings come at times.
        let is_due = !self.folder.is_behind() || self.reported.is_none_or(|at| at.elapsed() >= REPORT);
        let findings = if is_due { self.folder.take_findings() } else { None };
        let findings = findings.map(|findings| {
            self.reported = Some(Instant::now());
            self.log.log(findings);
            self.log.last().clone()
        });
        let tree = self.folder.tree();
        Looked {
            changes: looks.into_iter().map(|look| look.change).collect(),
            findings,
            held: tree.held().iter().map(ToString::to_string).collect(),
            kept: tree.kept().iter().map(ToString::to_string).collect(),
            listing,
            again,
        }
    }
}

/// The reason why the task wakes.
enum Wake {
    Asked(Request),
    Look(Work),
    Listed(Listing),
}

/// A listing that is made beside looks at single files.
struct ListingBeside {
    began: Instant,
    task: JoinHandle<Result<Listing, Panicked>>,
}

impl Run {
    async fn run(mut self) -> anyhow::Result<()> {
        let mut work = Work::everything();
        loop {
            if work.everything && self.may_list_beside() {
                // Files that are known to have changed do not wait for a listing of all the others.
                work.everything = false;
                self.begin_listing(work.closed.clone());
            }
            self.look_at(work).await?;
            work = loop {
                match self.wait().await? {
                    Wake::Asked(Request::Stop) => return Ok(()),
                    Wake::Look(work) => break work,
                    Wake::Listed(listing) => self.take_listing(listing).await?,
                    Wake::Asked(Request::Resync) => {
                        self.delivery.owe_full();
                        break Work::default();
                    }
                    Wake::Asked(Request::Confirm) => {
                        self.work.iter_mut().for_each(|work| work.folder.confirm());
                        break Work::default();
                    }
                }
            };
        }
    }

    /// Nothing goes on beside the first listing: without it, objects of an earlier run would seem to have no file.
    fn may_list_beside(&self) -> bool {
        self.delivery.is_delivered() && self.work.as_ref().is_some_and(|work| work.folder.is_known())
    }

    /// Looks at single files, or at everything where no listing may be made beside.
    async fn look_at(&mut self, work: Work) -> anyhow::Result<()> {
        let (first, everything) = (!self.delivery.is_delivered(), work.everything);
        if everything {
            self.looked_around = Instant::now();
        }
        let mut looked = self.apart(move |place| place.look(&work)).await?;
        if first && self.is_deliverable() {
            self.recall(&mut looked).await?;
        }
        let listing = self.take_in(looked).await;
        if everything {
            self.watcher.looked_around(listing);
        }
        if first && self.delivery.is_delivered() {
            self.log_folder();
        }
        Ok(())
    }

    /// Puts saved versions in force of objects that are refused, or out of reach, from the beginning.
    async fn recall(&mut self, looked: &mut Looked) -> anyhow::Result<()> {
        if self.work.as_ref().is_some_and(|place| place.folder.tree().has_unclear()) {
            let saved = self.delivery.saved().await;
            let recalled = self.apart(move |place| {
                place.folder.recall(saved);
                place.looked(Vec::new(), false)
            });
            let recalled = recalled.await?;
            looked.kept = recalled.kept;
            looked.findings = looked.findings.take().or(recalled.findings);
        }
        Ok(())
    }

    /// Begins a listing beside looks at single files. One that is due while another is under way follows it.
    fn begin_listing(&mut self, closed: BTreeSet<PathBuf>) {
        if self.listing.is_some() {
            self.watcher.look_around();
            return;
        }
        let Some(place) = &mut self.work else { return };
        let (request, disk) = (place.folder.begin_listing(closed), self.disk.clone());
        self.looked_around = Instant::now();
        self.watcher.looking_around();
        let task = tokio::task::spawn_blocking(move || catch(|| disk.list(&request)));
        self.listing = Some(ListingBeside { began: Instant::now(), task });
    }

    async fn take_listing(&mut self, listing: Listing) -> anyhow::Result<()> {
        let began = self.listing.take().map(|listing| listing.began);
        let looked = self.apart(move |place| place.take_listing(listing)).await?;
        let again = looked.again;
        let took = began.map_or(Duration::ZERO, |began| began.elapsed());
        self.take_in(looked).await;
        if again {
            self.begin_listing(BTreeSet::new());
        } else {
            self.watcher.looked_around(took);
        }
        Ok(())
    }

    /// Delivers the changes of a look and reports it. Gives the time that listings took.
    async fn take_in(&mut self, looked: Looked) -> Duration {
        for change in looked.changes {
            self.deliver(change).await;
        }
        self.report(looked.findings, looked.held, looked.kept);
        looked.listing
    }

    async fn wait(&mut self) -> anyhow::Result<Wake> {
        let rescan = self.looked_around + self.rescan;
        let may_rescan = self.listing.is_none();
        if may_rescan && rescan <= Instant::now() && !self.delivery.is_stopped() {
            // Events that never end do not put it off.
            return Ok(Wake::Look(Work::everything()));
        }
        let due = self.work.as_ref().and_then(|work| work.folder.next_due());
        let retry = self.delivery.retry_at(Instant::now()).filter(|_| self.is_deliverable());
        let soon = due.into_iter().chain(retry).min();
        let wake = async {
            match soon {
                Some(at) if !may_rescan || at < rescan => {
                    tokio::time::sleep_until(at.into()).await;
                    Work::default()
                }
                _ if may_rescan => {
                    tokio::time::sleep_until(rescan.into()).await;
                    Work::everything()
                }
                _ => std::future::pending().await,
            }
        };
        let listed = async {
            match &mut self.listing {
                Some(listing) => (&mut listing.task).await,
                None => std::future::pending().await,
            }
        };
        Ok(tokio::select! {
            biased;
            request = self.delivery.request() => Wake::Asked(request),
            listing = listed => Wake::Listed(listing??),
            work = self.watcher.next() => Wake::Look(work),
            () = self.disk.answered() => Wake::Look(Work::everything()),
            () = self.parsed.notified() => Wake::Look(Work::default()),
            work = wake => Wake::Look(work),
        })
    }

    /// Works with the folder on a blocking thread.
    async fn apart(&mut self, work: impl FnOnce(&mut Workplace) -> Looked + Send + 'static) -> anyhow::Result<Looked> {
        let mut place = self.work.take().context("the folder was lost in a fault")?;
        let mut look = tokio::task::spawn_blocking(move || {
            catch(|| {
                let looked = work(&mut place);
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
        let delta = if self.delivery.owes_full() { None } else { Some(change.clone()) };
        if !self.delivery.send(change, || in_force.values().cloned().collect()).await {
            return;
        }
        match (&mut *self.memory.lock(), delta) {
            (Some(memory), Some(Change::Delta { upserts, deletes })) => {
                memory.extend(upserts.into_iter().map(|config| (config.key(), config)));
                deletes.iter().for_each(|key| drop(memory.remove(key)));
            }
            (memory, _) => *memory = Some(in_force.clone()),
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
