//! The keys in demand, the time of the next poll of each, and their values: decisions only.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::rules::PollRules;
use crate::sources::{SourceReport, SourceState};

/// Pause after a first failure; it doubles with each further one.
pub(in crate::sources) const FIRST_RETRY: Duration = Duration::from_secs(1);

/// The values of all keys that have one.
pub type Values<R> = BTreeMap<<R as PollRules>::Key, <R as PollRules>::Value>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// The poll is under way.
    UnderWay,
    At(Instant),
}

#[derive(Debug)]
struct Entry<R: PollRules> {
    terms: R::Terms,
    held: R::Held,
    due: Due,
    answered: bool,
    failures: u32,
    error: Option<String>,
}

/// All keys in demand.
#[derive(Debug)]
pub struct PolledTable<R: PollRules> {
    rules: R,
    entries: BTreeMap<R::Key, Entry<R>>,
    /// Keys beyond the bound.
    left_out: usize,
}

impl<R: PollRules> PolledTable<R> {
    /// A table without keys.
    #[must_use]
    pub const fn new(rules: R) -> Self {
        Self { rules, entries: BTreeMap::new(), left_out: 0 }
    }

    /// Takes over the keys in demand; the first by order where they are too many. True when a value is lost.
    pub fn demand(&mut self, keys: &BTreeMap<R::Key, R::Terms>, now: Instant) -> bool {
        self.left_out = keys.len().saturating_sub(R::MOST_KEYS);
        let keys: BTreeMap<&R::Key, &R::Terms> = keys.iter().take(R::MOST_KEYS).collect();
        let mut lost = false;
        self.entries.retain(|key, entry| {
            let stays = keys.contains_key(key);
            lost |= !stays && R::value(&entry.held).is_some();
            stays
        });
        for (key, terms) in keys {
            let entry = self.entries.entry(key.clone()).or_insert_with(|| Entry {
                terms: terms.clone(),
                held: R::Held::default(),
                due: Due::At(now),
                answered: false,
                failures: 0,
                error: None,
            });
            entry.terms = terms.clone();
            lost |= R::expire(&mut entry.held, now);
        }
        lost
    }

    /// Makes the keys whose polls are under way due again, because these polls are lost.
    pub fn interrupted(&mut self, now: Instant) {
        self.entries.values_mut().filter(|e| e.due == Due::UnderWay).for_each(|e| e.due = Due::At(now));
    }

    /// Makes the keys due that wait for their refresh. Keys whose last poll failed keep their pause.
    pub fn hasten(&mut self, now: Instant) {
        for entry in self.entries.values_mut().filter(|entry| entry.failures == 0) {
            if let Due::At(at) = &mut entry.due {
                *at = now.min(*at);
            }
        }
    }

    /// The next key that is due, with the terms of its poll, which counts as under way from now on.
    pub fn poll_next(&mut self, now: Instant) -> Option<(R::Key, R::Terms)> {
        let is_due = |entry: &Entry<R>| matches!(entry.due, Due::At(at) if at <= now);
        let (key, entry) = self.entries.iter_mut().find(|(_, entry)| is_due(entry))?;
        entry.due = Due::UnderWay;
        Some((key.clone(), entry.terms.clone()))
    }

    /// The time at which the next key is due.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        let at = |entry: &Entry<R>| match entry.due {
            Due::At(at) => Some(at),
            Due::UnderWay => None,
        };
        self.entries.values().filter_map(at).min()
    }

    /// Takes an answer. True when a value has changed.
    pub fn answered(&mut self, key: &R::Key, answer: R::Answer, now: Instant) -> bool {
        let others: usize = self.entries.iter().filter(|(k, _)| *k != key).map(|(_, e)| R::bytes(&e.held)).sum();
        let Some(entry) = self.entries.get_mut(key) else { return false };
        let taken = self.rules.take(&mut entry.held, answer, R::MOST_BYTES.saturating_sub(others), now);
        entry.answered = true;
        let pause = match taken.next {
            Ok(pause) => {
                (entry.failures, entry.error) = (0, None);
                pause
            }
            Err(error) => {
                let doubled = FIRST_RETRY.saturating_mul(1 << entry.failures.min(16));
                (entry.failures, entry.error) = (entry.failures.saturating_add(1), Some(error));
                doubled.min(self.rules.longest_retry())
            }
        };
        entry.due = Due::At(now + pause);
        taken.changed
    }

    /// Whether each key has had an answer or a failure.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.entries.values().all(|entry| entry.answered)
    }

    /// The values that are in force.
    #[must_use]
    pub fn values(&self) -> Values<R> {
        self.entries.iter().filter_map(|(key, entry)| Some((key.clone(), R::value(&entry.held)?))).collect()
    }

    /// The keys with a problem, each with the reason.
    #[must_use]
    pub fn problems(&self) -> BTreeMap<R::Key, String> {
        let lack = |entry: &Entry<R>| entry.answered.then(|| R::lack(&entry.held)).flatten().map(String::from);
        let reason = |entry: &Entry<R>| entry.error.clone().or_else(|| lack(entry));
        self.entries.iter().filter_map(|(key, entry)| Some((key.clone(), reason(entry)?))).collect()
    }

    /// The number of keys in demand beyond the bound.
    #[must_use]
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    /// Whether a key has a value.
    #[must_use]
    pub fn has_value(&self, key: &R::Key) -> bool {
        self.entries.get(key).is_some_and(|entry| R::value(&entry.held).is_some())
    }

    /// Writes the state of the table into the report of its source.
    pub fn write(&self, report: &mut SourceReport) {
        let problems = self.problems();
        let mut error = problems.iter().next().map_or(String::new(), |(key, error)| match problems.len() {
            1 => format!("{}: {error}", R::text(key)),
            more => format!("{}: {error}; and {} more {}", R::text(key), more - 1, R::KEYS),
        });
        if self.left_out > 0 {
            let (keys, polled, most) = (R::KEYS, R::POLLED, R::MOST_KEYS);
            error = format!("{} {keys} beyond {most} are not {polled}; {error}", self.left_out);
        }
        report.objects = self.entries.values().filter(|entry| R::value(&entry.held).is_some()).count();
        report.state = match (self.is_answered(), error.is_empty()) {
            (false, _) if report.state == SourceState::Starting => SourceState::Starting,
            (_, true) => SourceState::Synced,
            (_, false) => SourceState::Stale,
        };
        report.last_error = error;
    }
}
