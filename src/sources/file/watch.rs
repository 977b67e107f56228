//! File system events to [`Work`]. The rescan finds the changes of missed events.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode, ModifyKind, RenameMode},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::{
    scan::is_config_name,
    settle::{Settle, Signal, Work},
};

/// Waits for work that file system events cause.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
}

/// The folders that are watched; never recursive, since the listing says which folders there are.
#[derive(Debug)]
pub struct Watched {
    shared: Arc<Shared>,
    inner: Option<RecommendedWatcher>,
    /// Folders by path, with device and inode.
    folders: BTreeMap<PathBuf, (u64, u64)>,
    problem: Option<String>,
}

#[derive(Debug)]
struct Shared {
    any_name: AtomicBool,
    /// The folders that are watched: a removed one can still be distinguished from a file.
    folders: Mutex<HashSet<PathBuf>>,
    settle: Mutex<Settle>,
    wake: Notify,
}

impl Shared {
    fn with<R>(&self, use_it: impl FnOnce(&mut Settle) -> R) -> R {
        use_it(&mut self.settle.lock())
    }

    fn folders(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.folders.lock()
    }
}

impl Watcher {
    /// A watcher of nothing. With `events` false it stays one: the caller polls.
    #[must_use]
    pub fn new(events: bool, quiet: Duration) -> (Self, Watched) {
        let shared = Arc::new(Shared {
            any_name: AtomicBool::new(false),
            folders: Mutex::default(),
            settle: Mutex::new(Settle::new(quiet)),
            wake: Notify::new(),
        });
        let watcher = Self { shared: shared.clone() };
        let mut watched = Watched { shared: shared.clone(), inner: None, folders: BTreeMap::new(), problem: None };
        if events {
            match notify::recommended_watcher(move |event| on_event(&shared, event)) {
                Ok(inner) => watched.inner = Some(inner),
                Err(error) => watched.problem = Some(error.to_string()),
            }
        }
        (watcher, watched)
    }

    /// Heeds files of every name, not only those of config files.
    #[must_use]
    pub fn any_name(self) -> Self {
        self.shared.any_name.store(true, Ordering::Relaxed);
        self
    }

    /// Everything is to be looked at now.
    pub fn look_around(&self) {
        self.shared.with(|settle| settle.folder(Instant::now()));
        self.shared.wake.notify_one();
    }

    /// A look at everything begins beside those at single files.
    pub fn looking_around(&self) {
        self.shared.with(Settle::looking_around);
    }

    /// A look at everything has ended, which took so long.
    pub fn looked_around(&self, took: Duration) {
        self.shared.with(|settle| settle.looked_around(took, Instant::now()));
    }

    /// Waits for work.
    pub async fn next(&self) -> Work {
        loop {
            let woken = self.shared.wake.notified();
            if let Some(work) = self.shared.with(|s| s.take(Instant::now())) {
                return work;
            }
            match self.shared.with(|s| s.next_due()) {
                Some(due) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(due.into()) => {}
                        () = woken => {}
                    }
                }
                None => woken.await,
            }
        }
    }
}

impl Watched {
    /// Watches exactly these folders from now on, each known by its device and inode. True when one is new, or was made
    /// anew under its old name: changes in it before that are not known. It may wait for the file system.
    pub fn set(&mut self, folders: &BTreeMap<PathBuf, (u64, u64)>) -> bool {
        let Some(inner) = &mut self.inner else { return false };
        let stale: Vec<PathBuf> =
            self.folders.iter().filter(|(p, id)| folders.get(*p) != Some(id)).map(|(p, _)| p.clone()).collect();
        for folder in stale {
            // The kernel forgets a removed folder by itself; the error means no more than that.
            let _ = inner.unwatch(&folder);
            self.folders.remove(&folder);
        }
        let mut new = false;
        self.problem = None;
        for (folder, id) in folders {
            if self.folders.contains_key(folder) {
                continue;
            }
            match inner.watch(folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.folders.insert(folder.clone(), *id);
                    new = true;
                }
                Err(error) => self.problem = Some(format!("{}: {error}", folder.display())),
            }
        }
        *self.shared.folders() = folders.keys().cloned().collect();
        new
    }

    /// The reason why events may be missing, if they may.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

fn on_event(shared: &Shared, event: notify::Result<Event>) {
    let now = Instant::now();
    let any_name = shared.any_name.load(Ordering::Relaxed);
    let folder = |path: &Path| shared.folders().contains(path) || is_folder_or_link(path);
    let heard = shared.with(|settle| match event {
        Ok(event) if event.need_rescan() => {
            settle.folder(now);
            true
        }
        Ok(event) => event.paths.iter().fold(false, |heard, path| {
            note(settle, event.kind, path, any_name || is_config_name(path), folder, now) | heard
        }),
        Err(_) => {
            settle.folder(now);
            true
        }
    });
    if heard {
        shared.wake.notify_one();
    }
}

/// Notes the meaning of an event for a path; false when it has none.
fn note(
    settle: &mut Settle,
    kind: EventKind,
    path: &Path,
    file: bool,
    is_folder: impl Fn(&Path) -> bool,
    now: Instant,
) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) if file => settle.file(path, Signal::Complete, now),
        EventKind::Modify(ModifyKind::Name(RenameMode::To)) if file => settle.file(path, Signal::Complete, now),
        EventKind::Modify(ModifyKind::Data(_)) if file => settle.file(path, Signal::Unsettled, now),
        EventKind::Create(_) | EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) if file => {
            settle.file(path, Signal::Unsettled, now);
        }
        EventKind::Create(_)
        | EventKind::Remove(_)
        | EventKind::Modify(ModifyKind::Name(_) | ModifyKind::Metadata(_))
        | EventKind::Other => {
            // A folder came, went or was renamed, a ConfigMap was swapped, permissions changed. Other names are noise.
            let folder = file || path.extension().is_none() || is_folder(path);
            if folder {
                settle.folder(now);
            }
            return folder;
        }
        _ => return false,
    }
    true
}

/// Asks without following the link: where it leads may not answer.
fn is_folder_or_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() || meta.is_symlink())
}
