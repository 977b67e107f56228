//! The time at which a changed file is to be read.
//!
//! A file that was closed after writing, or renamed into place, is due at once; one that is being written, or was removed
//! (an editor may put it back), when it has been quiet for a while, and after a bounded time also without a quiet moment.
//! Looks at everything take a part of the time only: single files do not wait for one look after the other.
//! Pure: the caller brings the time.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Above this number of paths the whole folder is looked at, and the older half of them is left to that look.
const MAX_PATHS: usize = 4096;
/// The pause after a look at everything, as a multiple of its duration.
const PAUSE: u32 = 3;
/// A path that is never quiet is due after this many quiet times.
const MOST_QUIET_TIMES: u32 = 10;

/// The meaning of a file system event for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// The file is complete: closed after writing, or renamed into place.
    Complete,
    /// The file may still change, or come back.
    Unsettled,
}

/// The paths that are to be looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Work {
    /// The whole folder.
    pub everything: bool,
    /// Changed files.
    pub paths: BTreeSet<PathBuf>,
    /// Files among them that are complete.
    pub closed: BTreeSet<PathBuf>,
}

impl Work {
    /// A look at everything.
    #[must_use]
    pub fn everything() -> Self {
        Self { everything: true, ..Self::default() }
    }

    /// A look at a file that was closed after writing.
    #[must_use]
    pub fn closed(path: &Path) -> Self {
        let paths = BTreeSet::from([path.to_path_buf()]);
        Self { everything: false, closed: paths.clone(), paths }
    }
}

/// A time that each event pushes back, up to a bound.
#[derive(Debug, Clone, Copy)]
struct Due {
    at: Instant,
    last: Instant,
}

impl Due {
    fn push_back(before: Option<Self>, quiet: Duration, now: Instant) -> Self {
        let last = before.map_or(now + quiet * MOST_QUIET_TIMES, |due| due.last);
        Self { at: last.min(now + quiet), last }
    }
}

/// A path that waits.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    signal: Signal,
    due: Due,
    /// The number of its last event.
    event: u64,
}

/// Paths that wait, each until its time.
#[derive(Debug)]
pub struct Settle {
    quiet: Duration,
    due: BTreeMap<PathBuf, Waiting>,
    everything: Option<Due>,
    /// The end of the pause after a look at everything.
    pause: Option<Instant>,
    /// A look at everything is under way.
    is_looking: bool,
    /// The number of events so far.
    events: u64,
}

impl Settle {
    /// Nothing waits; unsettled files are due when they have been quiet for this long.
    #[must_use]
    pub fn new(quiet: Duration) -> Self {
        Self { quiet, due: BTreeMap::new(), everything: None, pause: None, is_looking: false, events: 0 }
    }

    /// A file changed.
    pub fn file(&mut self, path: &Path, signal: Signal, now: Instant) {
        let before = self.due.get(path).map(|waiting| waiting.due);
        let due = match signal {
            Signal::Complete => Due { at: now, last: now },
            Signal::Unsettled => Due::push_back(before, self.quiet, now),
        };
        self.events += 1;
        self.due.insert(path.to_path_buf(), Waiting { signal, due, event: self.events });
        if self.due.len() > MAX_PATHS {
            self.forget_the_older_half();
            self.folder(now);
        }
    }

    /// A file that changes among very many others does not wait for a look at all of them: the newest of each folder stay
    /// first, and very many files in one folder hide none of another.
    fn forget_the_older_half(&mut self) {
        let mut newest: Vec<(u64, PathBuf)> = self.due.iter().map(|(path, w)| (w.event, path.clone())).collect();
        newest.sort_unstable_by_key(|(event, _)| Reverse(*event));
        let turns = turns(newest.iter().map(|(_, path)| path.as_path()));
        let mut by_turns: Vec<_> = turns.into_iter().zip(newest).collect();
        by_turns.sort_by_key(|(turn, _)| *turn);
        for (_, (_, path)) in by_turns.into_iter().skip(MAX_PATHS / 2) {
            self.due.remove(&path);
        }
    }

    /// Many files may have changed.
    pub fn folder(&mut self, now: Instant) {
        self.everything = Some(Due::push_back(self.everything, self.quiet, now));
    }

    /// A look at everything begins beside those at single files; the next one is not due before it has ended.
    pub fn looking_around(&mut self) {
        self.is_looking = true;
    }

    /// A look at everything has ended, which took so long.
    pub fn looked_around(&mut self, took: Duration, now: Instant) {
        self.is_looking = false;
        self.pause = Some(now + took * PAUSE);
    }

    /// The time of the next look at everything.
    fn everything_at(&self) -> Option<Instant> {
        let due = self.everything.filter(|_| !self.is_looking);
        due.map(|due| self.pause.map_or(due.at, |pause| due.at.max(pause)))
    }

    /// The time of the next work.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.due.values().map(|waiting| waiting.due.at).chain(self.everything_at()).min()
    }

    /// The work that is due now.
    pub fn take(&mut self, now: Instant) -> Option<Work> {
        let everything = self.everything_at().is_some_and(|at| at <= now);
        if everything {
            self.everything = None;
        }
        let mut work = Work { everything, ..Work::default() };
        self.due.retain(|path, waiting| {
            let waits = !everything && waiting.due.at > now;
            if !waits {
                work.paths.insert(path.clone());
                if waiting.signal == Signal::Complete {
                    work.closed.insert(path.clone());
                }
            }
            waits
        });
        (everything || !work.paths.is_empty()).then_some(work)
    }
}

/// The turn of each path where folders take turns: 0 for the first path of its folder, 1 for the second, and so on.
pub(super) fn turns<'a>(paths: impl Iterator<Item = &'a Path>) -> Vec<usize> {
    let mut of_folders: HashMap<Option<&Path>, usize> = HashMap::new();
    let turn = |path: &'a Path| {
        let next = of_folders.entry(path.parent()).or_default();
        *next += 1;
        *next - 1
    };
    paths.map(turn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_millis(50);

    fn unsettled(path: &str) -> Work {
        Work { paths: BTreeSet::from([path.into()]), ..Work::default() }
    }

    #[test]
    fn a_complete_file_is_due_at_once_and_a_written_one_when_quiet() {
        let now = Instant::now();
        let mut settle = Settle::new(QUIET);
        settle.file(Path::new("a"), Signal::Unsettled, now);
        settle.file(Path::new("b"), Signal::Complete, now);
        assert_eq!(settle.take(now), Some(Work::closed(Path::new("b"))));
        settle.file(Path::new("a"), Signal::Unsettled, now + QUIET / 2);
        assert_eq!(settle.take(now + QUIET), None);
        assert_eq!(settle.next_due(), Some(now + QUIET / 2 + QUIET));
        settle.file(Path::new("a"), Signal::Complete, now + QUIET);
        assert_eq!(settle.take(now + QUIET), Some(Work::closed(Path::new("a"))));
        assert_eq!(settle.next_due(), None);
    }

    #[test]
    fn noise_pushes_nothing_back_for_ever() {
        let begin = Instant::now();
        let mut settle = Settle::new(QUIET);
        let (mut file, mut folder) = (None, None);
        for step in 0..200 {
            let now = begin + Duration::from_millis(10) * step;
            if let Some(work) = settle.take(now) {
                let seen = if work.everything { &mut folder } else { &mut file };
                seen.get_or_insert(now);
            }
            settle.file(Path::new("a"), Signal::Unsettled, now);
            if step > 70 {
                settle.folder(now);
            }
        }
        assert_eq!(file, Some(begin + QUIET * 10));
        assert_eq!(folder, Some(begin + Duration::from_millis(710) + QUIET * 10));
    }

    #[test]
    fn of_too_many_paths_the_newest_are_due_and_then_everything() {
        let now = Instant::now();
        let mut settle = Settle::new(QUIET);
        for i in 0..=MAX_PATHS {
            settle.file(Path::new(&i.to_string()), Signal::Complete, now);
        }
        let newest: BTreeSet<PathBuf> = (MAX_PATHS / 2 + 1..=MAX_PATHS).map(|i| i.to_string().into()).collect();
        let work = settle.take(now).unwrap();
        assert!(!work.everything && work.paths == newest && work.closed == newest, "{:?}", work.paths);
        assert_eq!(settle.take(now), None);
        assert_eq!(settle.take(now + QUIET), Some(Work::everything()));
    }

    #[test]
    fn many_paths_of_one_folder_hide_none_of_another() {
        let now = Instant::now();
        let mut settle = Settle::new(QUIET);
        settle.file(Path::new("a/quiet"), Signal::Complete, now);
        for i in 0..MAX_PATHS * 3 {
            settle.file(&Path::new("b").join(i.to_string()), Signal::Complete, now);
            assert!(settle.due.len() <= MAX_PATHS);
        }
        for i in 0..MAX_PATHS * 3 {
            settle.file(&Path::new(&i.to_string()).join("alone"), Signal::Complete, now);
            assert!(settle.due.len() <= MAX_PATHS);
            if i == MAX_PATHS / 4 {
                assert!(settle.due.contains_key(Path::new("a/quiet")));
            }
        }
    }

    #[test]
    fn looks_at_everything_take_a_part_of_the_time() {
        let begin = Instant::now();
        let mut settle = Settle::new(QUIET);
        settle.folder(begin);
        assert_eq!(settle.take(begin + QUIET), Some(Work::everything()));
        let ended = begin + QUIET * 11;
        settle.looked_around(QUIET * 10, ended);
        settle.folder(ended);
        settle.file(Path::new("a"), Signal::Complete, ended);
        assert_eq!(settle.take(ended), Some(Work::closed(Path::new("a"))), "a file does not wait");
        assert_eq!((settle.take(ended + QUIET * 29), settle.next_due()), (None, Some(ended + QUIET * 30)));
        assert_eq!(settle.take(ended + QUIET * 30), Some(Work::everything()));
    }

    #[test]
    fn one_look_at_everything_goes_on_at_a_time() {
        let begin = Instant::now();
        let mut settle = Settle::new(QUIET);
        settle.looking_around();
        settle.folder(begin);
        settle.file(Path::new("a"), Signal::Complete, begin);
        assert_eq!(settle.take(begin + QUIET), Some(Work::closed(Path::new("a"))));
        assert_eq!((settle.take(begin + QUIET * 100), settle.next_due()), (None, None));
        settle.looked_around(QUIET, begin + QUIET * 100);
        assert_eq!(settle.take(begin + QUIET * 103), Some(Work::everything()));
    }

    #[test]
    fn a_file_that_was_closed_stays_so_when_everything_is_due() {
        let now = Instant::now();
        let mut settle = Settle::new(QUIET);
        settle.folder(now);
        settle.file(Path::new("a"), Signal::Complete, now + QUIET);
        settle.file(Path::new("b"), Signal::Unsettled, now + QUIET);
        let work = settle.take(now + QUIET).unwrap();
        assert!(work.everything && work.closed == Work::closed(Path::new("a")).closed, "{work:?}");
        assert_eq!(settle.take(now + QUIET * 2), None);
        settle.file(Path::new("b"), Signal::Unsettled, now);
        assert_eq!(settle.take(now + QUIET * 2), Some(unsettled("b")));
    }
}
