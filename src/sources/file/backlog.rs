//! Files that a listing has found and that are still to be read: a look reads a bounded number of them, so that a single
//! file that changes beside very many others does not wait for all of these.
//!
//! Each batch holds the files that changed last, with the folders by turns, and as many of those that changed first: neither a
//! new file, nor an old one, nor one beside a folder of very many waits for ever while others change all the time. Pure: the
//! caller brings the time.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    path::PathBuf,
    sync::Arc,
    time::Instant,
};

use super::{read::Stat, settle::turns};

/// A file that is to be read.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// Its path, as the listing spells it.
    pub path: Arc<PathBuf>,
    /// Its metadata in the listing.
    pub stat: Stat,
    /// It was closed after writing.
    pub is_closed: bool,
    /// It was read already with these metadata, which do not prove yet that its content is the same.
    pub is_known: bool,
}

/// The files that wait.
#[derive(Debug, Default)]
pub struct Backlog {
    /// Those with other metadata than before, by the time of the change, each with the time since which it waits; `None` once
    /// it was taken.
    new: Vec<Option<(Waiting, Instant)>>,
    /// Their places: the newest of each folder first, then the second newest of each.
    newest: VecDeque<usize>,
    /// The same by the time of the change, the oldest first.
    oldest: Range<usize>,
    known: VecDeque<Waiting>,
}

impl Backlog {
    /// Takes the files of a listing in the place of those of the listing before.
    pub fn set(&mut self, files: Vec<Waiting>, now: Instant) {
        let before: HashMap<Arc<PathBuf>, (Waiting, Instant)> =
            self.new.drain(..).flatten().map(|(file, since)| (file.path.clone(), (file, since))).collect();
        let (known, mut new): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.is_known);
        new.sort_by(|a, b| a.stat.changed().cmp(&b.stat.changed()).then_with(|| a.path.cmp(&b.path)));
        let turns = turns(new.iter().rev().map(|file| file.path.as_path()));
        let mut newest: Vec<(usize, usize)> = turns.into_iter().zip((0..new.len()).rev()).collect();
        newest.sort_by_key(|(turn, _)| *turn);
        let since = |mut file: Waiting| match before.get(&file.path) {
            Some((old, since)) => {
                file.is_closed |= old.is_closed && old.stat == file.stat;
                Some((file, *since))
            }
            None => Some((file, now)),
        };
        self.newest = newest.into_iter().map(|(_, place)| place).collect();
        self.oldest = 0..new.len();
        self.new = new.into_iter().map(since).collect();
        self.known = known.into();
    }

    /// The files to read now, so many at most.
    pub fn take(&mut self, most: usize) -> Vec<Waiting> {
        let mut batch = Vec::new();
        while batch.len() < most {
            let next = if batch.len() % 2 == 0 { self.take_newest() } else { self.take_oldest() };
            match next.or_else(|| self.known.pop_front()) {
                Some(file) => batch.push(file),
                None => break,
            }
        }
        if self.newest.is_empty() || self.oldest.is_empty() {
            // All were taken: none is left in the other order either.
            (self.new, self.newest, self.oldest) = Default::default();
        }
        batch
    }

    fn take_newest(&mut self) -> Option<Waiting> {
        while let Some(place) = self.newest.pop_front() {
            if let Some((file, _)) = self.new[place].take() {
                return Some(file);
            }
        }
        None
    }

    fn take_oldest(&mut self) -> Option<Waiting> {
        self.oldest.find_map(|place| self.new[place].take()).map(|(file, _)| file)
    }

    /// Whether no file waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty() && self.new.is_empty()
    }

    /// The files with a text that was not read yet.
    pub fn unread(&self) -> impl Iterator<Item = &Arc<PathBuf>> {
        self.new.iter().flatten().map(|(file, _)| &file.path)
    }

    /// The time since which the first of these waits.
    #[must_use]
    pub fn since(&self) -> Option<Instant> {
        self.new.iter().flatten().map(|(_, since)| *since).min()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, time::Duration};

    use super::*;

    const BATCH: usize = 100;

    fn files(dir: &std::path::Path, count: usize) -> Vec<Waiting> {
        let file = |n: usize| {
            let path = dir.join(format!("{n:05}"));
            fs::write(&path, "a").unwrap();
            let stat = Stat::of(&fs::metadata(&path).unwrap());
            Waiting { path: Arc::new(path), stat, is_closed: false, is_known: false }
        };
        (0..count).map(file).collect()
    }

    #[test]
    fn each_file_is_in_one_batch_and_the_newest_and_the_oldest_are_in_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path(), BATCH * 5 / 2);
        let mut backlog = Backlog::default();
        backlog.set(files.clone(), Instant::now());
        let batches: Vec<Vec<Waiting>> = (0..4).map(|_| backlog.take(BATCH)).collect();
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [BATCH, BATCH, BATCH / 2, 0]);
        let first: BTreeSet<_> = batches[0].iter().map(|file| &file.path).collect();
        assert!(first.contains(&files[0].path) && first.contains(&files.last().unwrap().path));
        let all: BTreeSet<_> = batches.iter().flatten().map(|file| &file.path).collect();
        assert!(all.len() == files.len() && backlog.is_empty());
    }

    #[test]
    fn very_many_files_of_one_folder_hide_none_of_another() {
        let (crowd, quiet) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let early = files(crowd.path(), BATCH * 3);
        let single = files(quiet.path(), 1).remove(0);
        let mut all: Vec<Waiting> = early.into_iter().chain([single.clone()]).collect();
        fs::create_dir(crowd.path().join("later")).unwrap();
        all.extend(files(&crowd.path().join("later"), BATCH * 3));
        let mut backlog = Backlog::default();
        backlog.set(all, Instant::now());
        assert!(backlog.take(BATCH / 10).iter().any(|file| file.path == single.path));
    }

    #[test]
    fn a_file_of_a_listing_before_has_waited_since_then_and_known_ones_come_last() {
        let dir = tempfile::tempdir().unwrap();
        let (mut files, begin) = (files(dir.path(), BATCH + 2), Instant::now());
        let mut backlog = Backlog::default();
        files[BATCH / 2].is_closed = true;
        backlog.set(files.clone(), begin);
        backlog.take(BATCH);
        assert_eq!((backlog.since(), backlog.unread().count()), (Some(begin), 2));
        // The next listing: nothing was closed since, and the files of the first batch were read.
        let left: BTreeSet<Arc<PathBuf>> = backlog.unread().cloned().collect();
        for file in &mut files {
            file.is_closed = false;
            file.is_known = !left.contains(&file.path);
        }
        backlog.set(files.clone(), begin + Duration::from_secs(1));
        assert_eq!((backlog.since(), backlog.unread().count()), (Some(begin), 2));
        let batch = backlog.take(BATCH);
        assert!(!batch[0].is_known && !batch[1].is_known && batch[2..].iter().all(|file| file.is_known));
        assert_eq!(
            batch.iter().filter(|file| file.is_closed).count(),
            usize::from(left.contains(&files[BATCH / 2].path))
        );
        assert_eq!((backlog.since(), backlog.take(usize::MAX).len()), (None, 2));
    }
}
