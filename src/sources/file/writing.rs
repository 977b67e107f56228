//! Files that are being written in place: they are read when the writer has closed them, or has been quiet for a while.
//!
//! `helm template . > all.yaml` empties the file at once and fills it seconds later; the content in between is neither the
//! old one nor the new one. Pure: the caller brings the time.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use super::read::Stat;

/// A file without a close event is complete when it has not changed for this long.
const QUIET: Duration = Duration::from_secs(2);
/// A file that never stops changing is read after this time as it is.
const LONGEST: Duration = Duration::from_secs(10);
/// A file without content is complete when it has not changed for this long.
const QUIET_IF_BLANK: Duration = Duration::from_secs(30);

/// The files that are being written.
#[derive(Debug, Default)]
pub struct Writing(HashMap<Arc<PathBuf>, UnsettledFile>);

#[derive(Debug)]
struct UnsettledFile {
    stat: Stat,
    blank: bool,
    /// The time since which it has this stat.
    since: Instant,
    /// The time since which it is being written.
    first: Instant,
}

impl UnsettledFile {
    fn due(&self) -> Instant {
        if self.blank { self.since + QUIET_IF_BLANK } else { (self.since + QUIET).min(self.first + LONGEST) }
    }
}

impl Writing {
    /// Whether a file that was changed in place, without a close event, is to be left alone now.
    pub fn goes_on(&mut self, path: &Arc<PathBuf>, stat: Stat, blank: bool, now: Instant) -> bool {
        let new = UnsettledFile { stat, blank, since: now, first: now };
        let file = self.0.entry(path.clone()).or_insert(new);
        if file.stat != stat {
            *file = UnsettledFile { stat, blank, since: now, first: file.first };
        }
        if file.due() > now {
            return true;
        }
        self.0.remove(path);
        false
    }

    /// Whether the file is being written.
    pub fn contains(&self, path: &Arc<PathBuf>) -> bool {
        self.0.contains_key(path)
    }

    /// The file is complete, or gone.
    pub fn end(&mut self, path: &Arc<PathBuf>) {
        self.0.remove(path);
    }

    /// The time at which the first of them is to be read again.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.0.values().map(UnsettledFile::due).min()
    }

    /// The files that are to be read again.
    pub fn due(&self, now: Instant) -> impl Iterator<Item = &Arc<PathBuf>> {
        self.0.iter().filter(move |(_, file)| file.due() <= now).map(|(path, _)| path)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_left_alone_until_it_is_quiet_and_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = Arc::new(dir.path().join("x"));
        let stat = |text: &str| {
            fs::write(&*path, text).unwrap();
            Stat::of(&fs::metadata(&*path).unwrap())
        };
        let now = Instant::now();
        let mut writing = Writing::default();
        let first = stat("a");
        assert!(writing.goes_on(&path, first, false, now));
        assert_eq!(writing.next_due(), Some(now + QUIET));
        assert!(writing.due(now + QUIET / 2).next().is_none() && writing.due(now + QUIET).next().is_some());
        assert!(!writing.goes_on(&path, first, false, now + QUIET));
        assert_eq!(writing.next_due(), None);
        let mut text = String::new();
        let taken = (0..20).find(|second| {
            text.push('x');
            !writing.goes_on(&path, stat(&text), false, now + Duration::from_secs(*second))
        });
        assert_eq!(taken, Some(LONGEST.as_secs()));
        let blank = stat("");
        assert!(writing.goes_on(&path, blank, true, now));
        assert!(writing.goes_on(&path, blank, true, now + LONGEST * 2));
        assert!(!writing.goes_on(&path, blank, true, now + QUIET_IF_BLANK));
    }
}
