//! Which key sets are fetched, when each is fetched again, and the keys: decisions only.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::model::key_set::{self, KeyLocation, KeySets};

/// Locations that are fetched at most.
pub(super) const MOST_LOCATIONS: usize = 1000;
/// Bytes of all key sets together at most.
const MOST_BYTES: usize = 32 << 20;
/// Pause after a first failure; it doubles with each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest pause after a failure.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// Keys that could not be fetched again for so long count no more.
const LONGEST_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// The locations that are wanted, each with the time that a fetch may take.
pub type Wanted = BTreeMap<KeyLocation, Duration>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The fetch is under way.
    Asked,
    At(Instant),
}

#[derive(Debug)]
struct Entry {
    patience: Duration,
    keys: Option<Arc<str>>,
    /// When the keys were fetched last.
    fetched: Option<Instant>,
    next: Next,
    answered: bool,
    failures: u32,
    error: Option<String>,
}

/// All locations that are wanted.
#[derive(Debug)]
pub struct KeyTable {
    /// Pause after a success.
    rhythm: Duration,
    entries: BTreeMap<KeyLocation, Entry>,
    /// Locations beyond the bound.
    left_out: usize,
}

impl KeyTable {
    /// A table without locations, each of which is fetched again after `rhythm`.
    #[must_use]
    pub fn new(rhythm: Duration) -> Self {
        Self { rhythm: rhythm.max(FIRST_RETRY), entries: BTreeMap::new(), left_out: 0 }
    }

    /// Takes over which locations are wanted; the first by order where they are too many. True when keys are gone with one.
    pub fn want(&mut self, wanted: &Wanted, now: Instant) -> bool {
        self.left_out = wanted.len().saturating_sub(MOST_LOCATIONS);
        let wanted: BTreeMap<&KeyLocation, Duration> =
            wanted.iter().take(MOST_LOCATIONS).map(|(at, patience)| (at, *patience)).collect();
        let before = self.entries.len();
        self.entries.retain(|at, _| wanted.contains_key(at));
        let mut lost = self.entries.len() < before;
        for (at, patience) in wanted {
            let entry = self.entries.entry(at.clone()).or_insert_with(|| Entry {
                patience,
                keys: None,
                fetched: None,
                next: Next::At(now),
                answered: false,
                failures: 0,
                error: None,
            });
            entry.patience = patience;
            if entry.fetched.is_some_and(|at| now.saturating_duration_since(at) > LONGEST_LIFE) {
                lost |= entry.keys.take().is_some();
            }
        }
        lost
    }

    /// The fetches under way are lost: their locations are due again.
    pub fn interrupted(&mut self, now: Instant) {
        self.entries.values_mut().filter(|e| e.next == Next::Asked).for_each(|e| e.next = Next::At(now));
    }

    /// A location that is due, with the time for it, as many times as it is called; from now on it counts as asked for.
    pub fn ask_next(&mut self, now: Instant) -> Option<(KeyLocation, Duration)> {
        let due = |entry: &Entry| matches!(entry.next, Next::At(at) if at <= now);
        let (at, entry) = self.entries.iter_mut().find(|(_, entry)| due(entry))?;
        entry.next = Next::Asked;
        Some((at.clone(), entry.patience))
    }

    /// When the next location is due.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        let at = |entry: &Entry| match entry.next {
            Next::At(at) => Some(at),
            Next::Asked => None,
        };
        self.entries.values().filter_map(at).min()
    }

    /// Takes what a server answered. True when the keys are others than before.
    pub fn answered(&mut self, at: &KeyLocation, answer: Result<String, String>, now: Instant) -> bool {
        let others: usize = self.entries.iter().filter(|(a, _)| *a != at).map(|(_, e)| e.size()).sum();
        let Some(entry) = self.entries.get_mut(at) else { return false };
        entry.answered = true;
        let checked = answer.and_then(|text| {
            key_set::check(&text)?;
            if others + text.len() > MOST_BYTES {
                Err("the key sets are too large together".to_string())
            } else {
                Ok(text)
            }
        });
        match checked {
            Ok(text) => {
                let changed = entry.keys.as_deref() != Some(text.as_str());
                if changed {
                    entry.keys = Some(text.into());
                }
                (entry.fetched, entry.failures, entry.error) = (Some(now), 0, None);
                entry.next = Next::At(now + self.rhythm);
                changed
            }
            Err(error) => {
                let pause = FIRST_RETRY.saturating_mul(1 << entry.failures.min(16)).min(LONGEST_RETRY);
                (entry.failures, entry.error) = (entry.failures.saturating_add(1), Some(error));
                entry.next = Next::At(now + pause);
                false
            }
        }
    }

    /// Whether each location has had an answer or a failure.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.entries.values().all(|entry| entry.answered)
    }

    /// The keys that are known.
    #[must_use]
    pub fn keys(&self) -> KeySets {
        self.entries.iter().filter_map(|(at, entry)| Some((at.clone(), entry.keys.clone()?))).collect()
    }

    /// The locations that could not be fetched last, each with the reason.
    #[must_use]
    pub fn problems(&self) -> BTreeMap<KeyLocation, String> {
        self.entries.iter().filter_map(|(at, entry)| Some((at.clone(), entry.error.clone()?))).collect()
    }

    /// How many locations are wanted beyond the bound.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

impl Entry {
    fn size(&self) -> usize {
        self.keys.as_ref().map_or(0, |keys| keys.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const KEYS: &str = r#"{"keys":[]}"#;

    fn at(uri: &str) -> KeyLocation {
        KeyLocation::Uri(uri.into())
    }

    fn wanted(uris: &[&str]) -> Wanted {
        uris.iter().map(|uri| (at(uri), SECOND * 5)).collect()
    }

    fn fetch(table: &mut KeyTable, now: Instant, answer: Result<&str, &str>) -> bool {
        let (at, _) = table.ask_next(now).expect("a location is due");
        table.answered(&at, answer.map(String::from).map_err(String::from), now)
    }

    #[test]
    fn a_location_is_fetched_again_and_a_failure_keeps_its_keys() {
        let (mut table, now) = (KeyTable::new(SECOND * 1200), Instant::now());
        table.want(&wanted(&["a"]), now);
        assert!(!table.is_answered());
        assert!(fetch(&mut table, now, Ok(KEYS)));
        assert!(table.is_answered() && table.ask_next(now).is_none());
        assert_eq!(table.wake_at(), Some(now + SECOND * 1200));
        let later = now + SECOND * 1200;
        assert!(!fetch(&mut table, later, Ok(KEYS)), "the same keys");
        let later = later + SECOND * 1200;
        for pause in [1, 2, 4] {
            assert!(!fetch(&mut table, later, Err("down")));
            assert_eq!(table.wake_at(), Some(later + SECOND * pause));
            table.entries.values_mut().for_each(|e| e.next = Next::At(later));
        }
        assert_eq!(table.keys().len(), 1);
        assert_eq!(table.problems()[&at("a")], "down");
        assert!(fetch(&mut table, later, Ok(r#"{"keys":[{}]}"#)));
        assert!(table.problems().is_empty());
    }

    #[test]
    fn what_is_no_key_set_counts_as_a_failure() {
        let (mut table, now) = (KeyTable::new(SECOND), Instant::now());
        table.want(&wanted(&["a"]), now);
        assert!(!fetch(&mut table, now, Ok("secret of another server")));
        assert!(table.keys().is_empty() && !table.problems()[&at("a")].contains("secret"));
    }

    #[test]
    fn keys_end_with_their_location_and_with_their_life() {
        let (mut table, now) = (KeyTable::new(SECOND), Instant::now());
        table.want(&wanted(&["a", "b"]), now);
        fetch(&mut table, now, Ok(KEYS));
        fetch(&mut table, now, Ok(KEYS));
        assert!(!table.want(&wanted(&["a", "b"]), now));
        assert!(table.want(&wanted(&["b"]), now));
        assert!(!table.want(&wanted(&["b"]), now + LONGEST_LIFE));
        assert!(table.want(&wanted(&["b"]), now + LONGEST_LIFE + SECOND));
        assert!(table.keys().is_empty());
    }

    #[test]
    fn locations_and_bytes_are_bounded() {
        let (mut table, now) = (KeyTable::new(SECOND), Instant::now());
        let many: Wanted = (0..MOST_LOCATIONS + 3).map(|n| (at(&format!("{n:05}")), SECOND)).collect();
        table.want(&many, now);
        assert_eq!((table.left_out(), table.entries.len()), (3, MOST_LOCATIONS));
        let large = format!(r#"{{"keys":["{}"]}}"#, "x".repeat(MOST_BYTES / 2));
        assert!(fetch(&mut table, now, Ok(&large)));
        assert!(!fetch(&mut table, now, Ok(&large)), "no room for a second one");
        table.interrupted(now);
        assert!(table.ask_next(now).is_some());
    }
}
