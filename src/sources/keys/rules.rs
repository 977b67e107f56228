//! The rules of polled key sets: a steady interval, one bound on all bytes, and an end of life of keys.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    model::key_set::{self, KeyLocation},
    sources::polled::{PollRules, Taken},
};

/// The longest pause after a failure.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// The shortest refresh interval.
const LEAST_REFRESH: Duration = Duration::from_secs(1);
/// Keys that could not be fetched again for so long count no more.
const LONGEST_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// The rules of key sets.
#[derive(Debug)]
pub struct KeyRules {
    refresh: Duration,
}

/// The keys of one location.
#[derive(Debug, Default)]
pub struct HeldKeys {
    keys: Option<Arc<str>>,
    /// The time of the last successful fetch.
    fetched: Option<Instant>,
}

impl KeyRules {
    /// Fetches each location again `refresh` after a success.
    #[must_use]
    pub fn new(refresh: Duration) -> Self {
        Self { refresh: refresh.max(LEAST_REFRESH) }
    }
}

impl PollRules for KeyRules {
    type Key = KeyLocation;
    /// The longest time that a fetch may take.
    type Terms = Duration;
    type Answer = Result<String, String>;
    type Held = HeldKeys;
    type Value = Arc<str>;

    const SOURCE: &'static str = "jwks:request-authentication";
    const KEYS: &'static str = "locations";
    const POLLED: &'static str = "fetched";
    const MOST_KEYS: usize = 1000;
    const MOST_BYTES: usize = 32 << 20;

    fn take(&self, held: &mut HeldKeys, answer: Self::Answer, room: usize, now: Instant) -> Taken {
        let checked = answer.and_then(|text| {
            key_set::check(&text)?;
            if text.len() > room { Err("the key sets are too large together".to_string()) } else { Ok(text) }
        });
        match checked {
            Ok(text) => {
                let changed = held.keys.as_deref() != Some(text.as_str());
                if changed {
                    held.keys = Some(text.into());
                }
                held.fetched = Some(now);
                Taken { changed, next: Ok(self.refresh) }
            }
            Err(error) => Taken { changed: false, next: Err(error) },
        }
    }

    fn longest_retry(&self) -> Duration {
        LONGEST_RETRY
    }

    fn value(held: &HeldKeys) -> Option<Arc<str>> {
        held.keys.clone()
    }

    fn bytes(held: &HeldKeys) -> usize {
        held.keys.as_ref().map_or(0, |keys| keys.len())
    }

    fn expire(held: &mut HeldKeys, now: Instant) -> bool {
        let expired = held.fetched.is_some_and(|at| now.saturating_duration_since(at) > LONGEST_LIFE);
        expired && held.keys.take().is_some()
    }

    fn text(location: &KeyLocation) -> &str {
        location.as_str()
    }

    fn log(location: &KeyLocation, error: &str, kept: bool) {
        let location = location.as_str();
        tracing::warn!(location, error, kept, "the keys of a RequestAuthentication cannot be fetched");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sources::polled::PolledTable;

    const SECOND: Duration = Duration::from_secs(1);
    const KEYS: &str = r#"{"keys":[]}"#;

    fn at(uri: &str) -> KeyLocation {
        KeyLocation::Uri(uri.into())
    }

    fn wanted(uris: &[&str]) -> BTreeMap<KeyLocation, Duration> {
        uris.iter().map(|uri| (at(uri), SECOND * 5)).collect()
    }

    fn table(refresh: Duration) -> PolledTable<KeyRules> {
        PolledTable::new(KeyRules::new(refresh))
    }

    fn fetch(table: &mut PolledTable<KeyRules>, now: Instant, answer: Result<&str, &str>) -> bool {
        let (at, _) = table.poll_next(now).expect("a location is due");
        table.answered(&at, answer.map(String::from).map_err(String::from), now)
    }

    #[test]
    fn a_location_is_fetched_again_and_a_failure_keeps_its_keys() {
        let (mut table, now) = (table(SECOND * 1200), Instant::now());
        table.demand(&wanted(&["a"]), now);
        assert!(!table.is_answered());
        assert!(fetch(&mut table, now, Ok(KEYS)));
        assert!(table.is_answered() && table.poll_next(now).is_none());
        assert_eq!(table.wake_at(), Some(now + SECOND * 1200));
        let later = now + SECOND * 1200;
        assert!(!fetch(&mut table, later, Ok(KEYS)), "the same keys");
        let later = later + SECOND * 1200;
        let mut later = later;
        for pause in [1, 2, 4] {
            assert!(!fetch(&mut table, later, Err("down")));
            assert_eq!(table.wake_at(), Some(later + SECOND * pause));
            later += SECOND * pause;
        }
        assert_eq!(table.values().len(), 1);
        assert_eq!(table.problems()[&at("a")], "down");
        assert!(fetch(&mut table, later, Ok(r#"{"keys":[{}]}"#)));
        assert!(table.problems().is_empty());
    }

    #[test]
    fn an_answer_that_is_no_key_set_counts_as_a_failure() {
        let (mut table, now) = (table(SECOND), Instant::now());
        table.demand(&wanted(&["a"]), now);
        assert!(!fetch(&mut table, now, Ok("secret of another server")));
        assert!(table.values().is_empty() && !table.problems()[&at("a")].contains("secret"));
    }

    #[test]
    fn keys_end_with_their_location_and_with_their_life() {
        let (mut table, now) = (table(SECOND), Instant::now());
        table.demand(&wanted(&["a", "b"]), now);
        fetch(&mut table, now, Ok(KEYS));
        fetch(&mut table, now, Ok(KEYS));
        assert!(!table.demand(&wanted(&["a", "b"]), now));
        assert!(table.demand(&wanted(&["b"]), now));
        assert!(!table.demand(&wanted(&["b"]), now + LONGEST_LIFE));
        assert!(table.demand(&wanted(&["b"]), now + LONGEST_LIFE + SECOND));
        assert!(table.values().is_empty());
    }

    #[test]
    fn locations_and_bytes_are_bounded() {
        let (mut table, now) = (table(SECOND), Instant::now());
        let many: BTreeMap<_, _> = (0..KeyRules::MOST_KEYS + 3).map(|n| (at(&format!("{n:05}")), SECOND)).collect();
        table.demand(&many, now);
        assert_eq!(table.left_out(), 3);
        let due = std::iter::from_fn(|| table.poll_next(now)).count();
        assert_eq!(due, KeyRules::MOST_KEYS);
        table.interrupted(now);
        let large = format!(r#"{{"keys":["{}"]}}"#, "x".repeat(KeyRules::MOST_BYTES / 2));
        assert!(fetch(&mut table, now, Ok(&large)));
        assert!(!fetch(&mut table, now, Ok(&large)), "no room for a second one");
        assert_eq!(table.values().len(), 1);
    }
}
