//! The wanted names, the time of the next look-up of each, and their addresses: decisions only.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{model::ResolvedNames, settings::NameSettings};

/// Names that are asked for at most.
pub(super) const MOST_NAMES: usize = 1000;
/// Addresses of one name and family that count at most.
const MOST_ADDRESSES: usize = 64;
/// Pause after a first failure; it doubles with each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// The addresses of one family with their time to live, or the reason why there is no answer. A name without addresses is
/// an answer.
pub type FamilyAnswer = Result<(Vec<IpAddr>, Duration), String>;

/// The addresses of a name.
#[derive(Debug, Clone)]
pub struct NameRecords {
    /// Of its A records.
    pub v4: FamilyAnswer,
    /// Of its AAAA records.
    pub v6: FamilyAnswer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The question is under way.
    Asked,
    At(Instant),
}

#[derive(Debug)]
struct Entry {
    /// Of each family.
    addresses: [Vec<IpAddr>; 2],
    next: Next,
    answered: bool,
    failures: u32,
    error: Option<String>,
}

/// All names that are wanted.
#[derive(Debug)]
pub struct NameTable {
    settings: NameSettings,
    entries: BTreeMap<Arc<str>, Entry>,
    /// Names beyond the bound.
    left_out: usize,
}

impl NameTable {
    /// A table without names.
    #[must_use]
    pub fn new(settings: NameSettings) -> Self {
        Self { settings, entries: BTreeMap::new(), left_out: 0 }
    }

    /// Takes over the wanted names; the first by order where they are too many. True when a name was removed together
    /// with addresses.
    pub fn want(&mut self, names: &BTreeSet<Arc<str>>, now: Instant) -> bool {
        self.left_out = names.len().saturating_sub(MOST_NAMES);
        let wanted: BTreeSet<&Arc<str>> = names.iter().take(MOST_NAMES).collect();
        let mut lost = false;
        self.entries.retain(|name, entry| {
            let stays = wanted.contains(name);
            lost |= !stays && entry.addresses.iter().any(|list| !list.is_empty());
            stays
        });
        for name in wanted {
            self.entries.entry(name.clone()).or_insert_with(|| Entry {
                addresses: Default::default(),
                next: Next::At(now),
                answered: false,
                failures: 0,
                error: None,
            });
        }
        lost
    }

    /// The questions under way are lost: their names are due again.
    pub fn interrupted(&mut self, now: Instant) {
        self.entries.values_mut().filter(|e| e.next == Next::Asked).for_each(|e| e.next = Next::At(now));
    }

    /// A name that is due, as many times as it is called; from now on it counts as asked for.
    pub fn ask_next(&mut self, now: Instant) -> Option<Arc<str>> {
        let due = |entry: &Entry| matches!(entry.next, Next::At(at) if at <= now);
        let (name, entry) = self.entries.iter_mut().find(|(_, entry)| due(entry))?;
        entry.next = Next::Asked;
        Some(name.clone())
    }

    /// When the next name is due.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        let at = |entry: &Entry| match entry.next {
            Next::At(at) => Some(at),
            Next::Asked => None,
        };
        self.entries.values().filter_map(at).min()
    }

    /// Takes an answer. True when the addresses are others than before.
    pub fn answered(&mut self, name: &str, answer: NameRecords, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(name) else { return false };
        let (least, most) = (self.settings.least_pause, self.settings.most_pause.max(self.settings.least_pause));
        let mut changed = false;
        let mut pause = most;
        let mut errors = Vec::new();
        for (held, answer) in entry.addresses.iter_mut().zip([answer.v4, answer.v6]) {
            match answer {
                Ok((mut list, lives)) => {
                    list.sort_unstable();
                    list.dedup();
                    list.truncate(MOST_ADDRESSES);
                    changed |= *held != list;
                    *held = list;
                    pause = pause.min(lives);
                }
                Err(error) => errors.push(error),
            }
        }
        entry.answered = true;
        // One family may fail for good, as where a server does not know AAAA: the answer of the other one is good enough.
        if errors.len() < entry.addresses.len() {
            (entry.failures, entry.error) = (0, None);
            pause = pause.max(least);
        } else {
            errors.dedup();
            pause = FIRST_RETRY.saturating_mul(1 << entry.failures.min(16)).min(least);
            (entry.failures, entry.error) = (entry.failures.saturating_add(1), Some(errors.join("; ")));
        }
        entry.next = Next::At(now + pause);
        changed
    }

    /// Whether each name has had an answer or a failure.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.entries.values().all(|entry| entry.answered)
    }

    /// The names that have addresses.
    #[must_use]
    pub fn addresses(&self) -> ResolvedNames {
        let of = |entry: &Entry| entry.addresses.iter().flatten().copied().collect::<Vec<_>>();
        self.entries.iter().map(|(n, e)| (n.clone(), of(e))).filter(|(_, list)| !list.is_empty()).collect()
    }

    /// The names that have no addresses of now, each with the reason.
    #[must_use]
    pub fn problems(&self) -> BTreeMap<Arc<str>, String> {
        let reason = |entry: &Entry| match &entry.error {
            Some(error) => Some(error.clone()),
            None if !entry.answered => None,
            None => entry.addresses.iter().all(Vec::is_empty).then(|| "it has no addresses".to_string()),
        };
        self.entries.iter().filter_map(|(name, entry)| Some((name.clone(), reason(entry)?))).collect()
    }

    /// The number of names that are wanted beyond the bound.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn table() -> NameTable {
        NameTable::new(NameSettings::default())
    }

    fn names(list: &[&str]) -> BTreeSet<Arc<str>> {
        list.iter().map(|name| Arc::from(*name)).collect()
    }

    fn is(v4: &[&str], lives: u64) -> NameRecords {
        let list = v4.iter().map(|ip| ip.parse().unwrap()).collect();
        NameRecords { v4: Ok((list, SECOND * u32::try_from(lives).unwrap())), v6: Ok((Vec::new(), SECOND * 3600)) }
    }

    fn failed() -> NameRecords {
        NameRecords { v4: Err("no answer".into()), v6: Err("no answer".into()) }
    }

    fn held(table: &NameTable, name: &str) -> Vec<String> {
        table.addresses().get(name).into_iter().flatten().map(ToString::to_string).collect()
    }

    #[test]
    fn a_name_is_asked_for_again_when_its_answer_ends_within_bounds() {
        let (mut table, now) = (table(), Instant::now());
        table.want(&names(&["a", "b"]), now);
        assert_eq!((table.ask_next(now).as_deref(), table.ask_next(now).as_deref()), (Some("a"), Some("b")));
        assert_eq!((table.ask_next(now), table.wake_at()), (None, None), "both are under way");
        assert!(!table.is_answered());
        for (lives, pause) in [(1, 30), (60, 60), (86_400, 3600)] {
            table.answered("a", is(&["10.0.0.1"], lives), now);
            assert_eq!(table.wake_at(), Some(now + SECOND * pause), "{lives} s");
        }
        assert!(!table.is_answered());
        assert!(!table.answered("b", is(&[], 0), now), "no addresses before, none now");
        assert!(table.is_answered());
        assert_eq!(table.problems().into_iter().collect::<Vec<_>>(), [("b".into(), "it has no addresses".to_string())]);
    }

    #[test]
    fn only_other_addresses_are_a_change_and_no_records_is_an_answer() {
        let (mut table, now) = (table(), Instant::now());
        table.want(&names(&["a"]), now);
        assert!(table.answered("a", is(&["10.0.0.2", "10.0.0.1", "10.0.0.2"], 60), now));
        assert_eq!(held(&table, "a"), ["10.0.0.1", "10.0.0.2"]);
        assert!(!table.answered("a", is(&["10.0.0.1", "10.0.0.2"], 90), now));
        assert!(table.answered("a", is(&[], 60), now));
        assert!(table.addresses().is_empty());
    }

    #[test]
    fn failures_keep_the_addresses_and_are_tried_again_soon_then_later() {
        let (mut table, now) = (table(), Instant::now());
        table.want(&names(&["a"]), now);
        table.answered("a", is(&["10.0.0.1"], 60), now);
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            assert!(!table.answered("a", failed(), now));
            assert_eq!(table.wake_at(), Some(now + SECOND * pause));
            assert_eq!(held(&table, "a"), ["10.0.0.1"]);
            assert_eq!(table.problems()["a"], "no answer");
        }
        let half = NameRecords { v4: Err("refused".into()), v6: Ok((vec!["::2".parse().unwrap()], SECOND * 60)) };
        assert!(table.answered("a", half, now));
        assert_eq!(held(&table, "a"), ["10.0.0.1", "::2"], "a family that fails keeps its addresses");
        assert!(table.problems().is_empty());
        assert_eq!(table.wake_at(), Some(now + SECOND * 60));
        table.answered("a", failed(), now);
        assert_eq!(table.wake_at(), Some(now + SECOND), "the count of failures began anew");
    }

    #[test]
    fn unwanted_names_are_forgotten_and_too_many_are_left_out() {
        let (mut table, now) = (table(), Instant::now());
        table.want(&names(&["a", "b"]), now);
        table.answered("a", is(&["10.0.0.1"], 60), now);
        assert!(!table.want(&names(&["a"]), now), "b had no addresses");
        assert!(table.want(&names(&["b"]), now));
        assert!(!table.answered("a", is(&["10.0.0.1"], 60), now), "an answer that comes late");
        assert!(table.addresses().is_empty());
        let many: BTreeSet<Arc<str>> = (0..=MOST_NAMES + 2).map(|n| format!("{n:06}").into()).collect();
        table.want(&many, now);
        assert_eq!((table.left_out(), std::iter::from_fn(|| table.ask_next(now)).count()), (3, MOST_NAMES));
        table.interrupted(now);
        assert!(table.ask_next(now).is_some(), "a question under way is due again");
        let many = (0..100).map(|n| format!("10.0.0.{n}")).collect::<Vec<_>>();
        table.answered("000000", is(&many.iter().map(String::as_str).collect::<Vec<_>>(), 60), now);
        assert_eq!(held(&table, "000000").len(), MOST_ADDRESSES);
    }
}
