//! File system events to [`Work`]. What is missed here is found by the rescan.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode, ModifyKind, RenameMode},
};
use tokio::sync::Notify;

use super::{
    scan::is_config_name,
    settle::{Settle, Signal, Work},
};

/// Watches folders; never recursive, since the scan says which folders there are.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    inner: Option<RecommendedWatcher>,
    /// Folders by path, with device and inode.
    folders: BTreeMap<PathBuf, (u64, u64)>,
    problem: Option<String>,
}

#[derive(Debug)]
struct Shared {
    any_name: AtomicBool,
    settle: Mutex<Settle>,
    wake: Notify,
}

impl Shared {
    fn with<R>(&self, use_it: impl FnOnce(&mut Settle) -> R) -> R {
        use_it(&mut self.settle.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Watcher {
    /// A watcher of nothing. With `events` false it stays one: the caller polls.
    #[must_use]
    pub fn new(events: bool, quiet: Duration) -> Self {
        let shared = Arc::new(Shared {
            any_name: AtomicBool::new(false),
            settle: Mutex::new(Settle::new(quiet)),
            wake: Notify::new(),
        });
        let mut watcher = Self { shared: shared.clone(), inner: None, folders: BTreeMap::new(), problem: None };
        if events {
            match notify::recommended_watcher(move |event| on_event(&shared, event)) {
                Ok(inner) => watcher.inner = Some(inner),
                Err(error) => watcher.problem = Some(error.to_string()),
            }
        }
        watcher
    }

    /// Heeds files of every name, not only those of config files.
    #[must_use]
    pub fn any_name(self) -> Self {
        self.shared.any_name.store(true, Ordering::Relaxed);
        self
    }

    /// Watches exactly these folders from now on. True when one is new, or was made anew under its old name: what happened
    /// in it before is not known.
    pub fn set(&mut self, folders: &BTreeSet<PathBuf>) -> bool {
        let Some(inner) = &mut self.inner else { return false };
        let identity = |p: &Path| fs::metadata(p).ok().map(|m| (m.dev(), m.ino()));
        let stale: Vec<PathBuf> = self
            .folders
            .iter()
            .filter(|(p, id)| !folders.contains(*p) || identity(p) != Some(**id))
            .map(|(p, _)| p.clone())
            .collect();
        for folder in stale {
            // The kernel forgets a removed folder by itself; the error says no more than that.
            let _ = inner.unwatch(&folder);
            self.folders.remove(&folder);
        }
        let mut new = false;
        self.problem = None;
        for folder in folders.iter().filter(|f| !self.folders.contains_key(*f)).cloned().collect::<Vec<_>>() {
            match (inner.watch(&folder, RecursiveMode::NonRecursive), identity(&folder)) {
                (Ok(()), Some(id)) => {
                    self.folders.insert(folder, id);
                    new = true;
                }
                (Ok(()), None) => new = true,
                (Err(error), _) => self.problem = Some(format!("{}: {error}", folder.display())),
            }
        }
        new
    }

    /// Why events may be missing, if they may.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Waits for something to do.
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

fn on_event(shared: &Shared, event: notify::Result<Event>) {
    let now = Instant::now();
    let any_name = shared.any_name.load(Ordering::Relaxed);
    let heard = shared.with(|settle| match event {
        Ok(event) if event.need_rescan() => {
            settle.folder(now);
            true
        }
        Ok(event) => {
            event.paths.iter().fold(false, |heard, path| note(settle, event.kind, path, any_name, now) | heard)
        }
        Err(_) => {
            settle.folder(now);
            true
        }
    });
    if heard {
        shared.wake.notify_one();
    }
}

/// Notes what an event means for a path; false when it means nothing.
fn note(settle: &mut Settle, kind: EventKind, path: &Path, any_name: bool, now: Instant) -> bool {
    let file = any_name || is_config_name(path);
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) if file => settle.file(path, Signal::Complete, now),
        EventKind::Modify(ModifyKind::Name(RenameMode::To)) if file && !path.is_dir() => {
            settle.file(path, Signal::Complete, now);
        }
        EventKind::Modify(ModifyKind::Data(_)) if file => settle.file(path, Signal::Unsettled, now),
        EventKind::Create(_) | EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))
            if file && !path.is_dir() =>
        {
            settle.file(path, Signal::Unsettled, now);
        }
        EventKind::Create(_)
        | EventKind::Remove(_)
        | EventKind::Modify(ModifyKind::Name(_) | ModifyKind::Metadata(_))
        | EventKind::Other => {
            // A folder came, went or was renamed, a ConfigMap was swapped, permissions changed. Other names are noise.
            let folder = path.is_dir() || path.extension().is_none() || file;
            if folder {
                settle.folder(now);
            }
            return folder;
        }
        _ => return false,
    }
    true
}
