//! When a file that something happened to is to be read.
//!
//! A file that was closed after writing, or renamed into place, is read at once; one that is being written, or has gone
//! away (an editor may put it back), when it has been quiet for a while. Pure: the caller brings the time.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// More paths than this are not told apart: everything is looked at.
const MAX_PATHS: usize = 1024;

/// What the file system told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// The file is complete: closed after writing, or renamed into place.
    Complete,
    /// The file may still change, or come back.
    Unsettled,
}

/// What is to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// These files.
    Paths(Vec<PathBuf>),
    /// All of it.
    Everything,
}

/// Paths that wait, each until its time.
#[derive(Debug)]
pub struct Settle {
    quiet: Duration,
    due: BTreeMap<PathBuf, Instant>,
    everything: Option<Instant>,
}

impl Settle {
    /// Nothing waits; unsettled files are read when they have been quiet for this long.
    #[must_use]
    pub fn new(quiet: Duration) -> Self {
        Self { quiet, due: BTreeMap::new(), everything: None }
    }

    /// Something happened to a file.
    pub fn file(&mut self, path: &Path, signal: Signal, now: Instant) {
        let due = match signal {
            Signal::Complete => now,
            Signal::Unsettled => now + self.quiet,
        };
        self.due.insert(path.to_path_buf(), due);
        if self.due.len() > MAX_PATHS {
            self.due.clear();
            self.folder(now);
        }
    }

    /// Something happened that may touch many files.
    pub fn folder(&mut self, now: Instant) {
        self.everything = Some(now + self.quiet);
    }

    /// When there is something to do.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.due.values().copied().chain(self.everything).min()
    }

    /// What is due now.
    pub fn take(&mut self, now: Instant) -> Option<Work> {
        if self.everything.is_some_and(|t| t <= now) {
            self.everything = None;
            self.due.clear();
            return Some(Work::Everything);
        }
        let ready: Vec<PathBuf> = self.due.iter().filter(|(_, t)| **t <= now).map(|(p, _)| p.clone()).collect();
        self.due.retain(|_, t| *t > now);
        (!ready.is_empty()).then_some(Work::Paths(ready))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_millis(50);

    #[test]
    fn a_complete_file_is_due_at_once_and_a_written_one_when_quiet() {
        let now = Instant::now();
        let mut settle = Settle::new(QUIET);
        settle.file(Path::new("a"), Signal::Unsettled, now);
        settle.file(Path::new("b"), Signal::Complete, now);
        assert_eq!(settle.take(now), Some(Work::Paths(vec!["b".into()])));
        settle.file(Path::new("a"), Signal::Unsettled, now + QUIET / 2);
        assert_eq!(settle.take(now + QUIET), None);
        assert_eq!(settle.next_due(), Some(now + QUIET / 2 + QUIET));
        settle.file(Path::new("a"), Signal::Complete, now + QUIET);
        assert_eq!(settle.take(now + QUIET), Some(Work::Paths(vec!["a".into()])));
        assert_eq!(settle.next_due(), None);
    }

    #[test]
    fn too_many_paths_become_everything() {
        let now = Instant::now();
        let mut settle = Settle::new(QUIET);
        for i in 0..=MAX_PATHS {
            settle.file(Path::new(&i.to_string()), Signal::Complete, now);
        }
        assert_eq!(settle.take(now), None);
        assert_eq!(settle.take(now + QUIET), Some(Work::Everything));
    }
}
