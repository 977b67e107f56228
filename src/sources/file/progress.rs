//! The path that a thread of file system calls is at, and since when: a call that does not return is recognised by it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Instant,
};

use parking_lot::{Mutex, MutexGuard};

/// The progress of a thread of file system calls.
#[derive(Debug)]
pub struct Progress(Mutex<Step>);

#[derive(Debug)]
pub(super) struct Step {
    pub(super) path: PathBuf,
    pub(super) since: Instant,
    /// The thread was left behind: its result is not wanted any more.
    pub(super) abandoned: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Step { path: PathBuf::new(), since: Instant::now(), abandoned: false }))
    }

    pub(super) fn step(&self) -> MutexGuard<'_, Step> {
        self.0.lock()
    }

    /// The next calls are about this path. False when the result is not wanted any more.
    pub fn at(&self, path: &Path) -> bool {
        let mut step = self.step();
        if !step.abandoned {
            step.path.as_mut_os_string().clear();
            step.path.push(path);
            step.since = Instant::now();
        }
        !step.abandoned
    }

    /// A call has returned, and another one about the same path follows.
    pub fn renew(&self) {
        self.step().since = Instant::now();
    }
}

/// Whether a path is one of these, or below one.
pub fn is_below(paths: &BTreeSet<PathBuf>, path: &Path) -> bool {
    !paths.is_empty() && path.ancestors().any(|p| paths.contains(p))
}
