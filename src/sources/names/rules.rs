//! The rules of polled host names: the time to live of an answer within bounds, and two families that fail apart.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    settings::NameSettings,
    sources::polled::{PollRules, Taken},
};

/// Addresses of one name and family that count at most.
const MOST_ADDRESSES: usize = 64;

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

/// The rules of host names.
#[derive(Debug)]
pub struct NameRules {
    least_pause: Duration,
    most_pause: Duration,
}

impl NameRules {
    /// The rules of these settings.
    #[must_use]
    pub fn new(settings: &NameSettings) -> Self {
        let least_pause = settings.least_pause;
        Self { least_pause, most_pause: settings.most_pause.max(least_pause) }
    }
}

impl PollRules for NameRules {
    type Key = Arc<str>;
    type Terms = ();
    type Answer = NameRecords;
    /// The addresses of each family.
    type Held = [Vec<IpAddr>; 2];
    type Value = Vec<IpAddr>;

    const SOURCE: &'static str = "dns:network-gateways";
    const KEYS: &'static str = "names";
    const POLLED: &'static str = "resolved";
    const MOST_KEYS: usize = 1000;
    /// Bounded by the numbers of names and addresses.
    const MOST_BYTES: usize = usize::MAX;

    fn take(&self, held: &mut Self::Held, answer: NameRecords, _: usize, _: Instant) -> Taken {
        let (mut changed, mut pause, mut errors) = (false, self.most_pause, Vec::new());
        for (held, answer) in held.iter_mut().zip([answer.v4, answer.v6]) {
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
        // One family may fail for good, as where a server does not know AAAA: the answer of the other one is good enough.
        if errors.len() < held.len() {
            return Taken { changed, next: Ok(pause.max(self.least_pause)) };
        }
        errors.dedup();
        Taken { changed, next: Err(errors.join("; ")) }
    }

    fn longest_retry(&self) -> Duration {
        self.least_pause
    }

    fn value(held: &Self::Held) -> Option<Vec<IpAddr>> {
        let all: Vec<_> = held.iter().flatten().copied().collect();
        (!all.is_empty()).then_some(all)
    }

    fn lack(held: &Self::Held) -> Option<&'static str> {
        held.iter().all(Vec::is_empty).then_some("it has no addresses")
    }

    fn text(name: &Arc<str>) -> &str {
        name
    }

    fn log(name: &Arc<str>, error: &str, _: bool) {
        tracing::warn!(name = &**name, error, "no addresses for the host name of a gateway between networks");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sources::polled::PolledTable;

    const SECOND: Duration = Duration::from_secs(1);

    fn table() -> PolledTable<NameRules> {
        PolledTable::new(NameRules::new(&NameSettings::default()))
    }

    fn names(list: &[&str]) -> BTreeMap<Arc<str>, ()> {
        list.iter().map(|name| (Arc::from(*name), ())).collect()
    }

    fn due(table: &mut PolledTable<NameRules>, now: Instant) -> Option<String> {
        table.poll_next(now).map(|(name, ())| name.to_string())
    }

    fn is(v4: &[&str], lives: u64) -> NameRecords {
        let list = v4.iter().map(|ip| ip.parse().unwrap()).collect();
        NameRecords { v4: Ok((list, SECOND * u32::try_from(lives).unwrap())), v6: Ok((Vec::new(), SECOND * 3600)) }
    }

    fn failed() -> NameRecords {
        NameRecords { v4: Err("no answer".into()), v6: Err("no answer".into()) }
    }

    fn held(table: &PolledTable<NameRules>, name: &str) -> Vec<String> {
        table.values().get(name).into_iter().flatten().map(ToString::to_string).collect()
    }

    #[test]
    fn a_name_is_asked_for_again_when_its_answer_ends_within_bounds() {
        let (mut table, now) = (table(), Instant::now());
        table.demand(&names(&["a", "b"]), now);
        assert_eq!((due(&mut table, now), due(&mut table, now)), (Some("a".into()), Some("b".into())));
        assert_eq!((due(&mut table, now), table.wake_at()), (None, None), "both are under way");
        assert!(!table.is_answered());
        for (lives, pause) in [(1, 30), (60, 60), (86_400, 3600)] {
            table.answered(&"a".into(), is(&["10.0.0.1"], lives), now);
            assert_eq!(table.wake_at(), Some(now + SECOND * pause), "{lives} s");
        }
        assert!(!table.is_answered());
        assert!(!table.answered(&"b".into(), is(&[], 0), now), "no addresses before, none now");
        assert!(table.is_answered());
        assert_eq!(table.problems().into_iter().collect::<Vec<_>>(), [("b".into(), "it has no addresses".to_string())]);
    }

    #[test]
    fn only_other_addresses_are_a_change_and_no_records_is_an_answer() {
        let (mut table, now) = (table(), Instant::now());
        table.demand(&names(&["a"]), now);
        assert!(table.answered(&"a".into(), is(&["10.0.0.2", "10.0.0.1", "10.0.0.2"], 60), now));
        assert_eq!(held(&table, "a"), ["10.0.0.1", "10.0.0.2"]);
        assert!(!table.answered(&"a".into(), is(&["10.0.0.1", "10.0.0.2"], 90), now));
        assert!(table.answered(&"a".into(), is(&[], 60), now));
        assert!(table.values().is_empty());
    }

    #[test]
    fn failures_keep_the_addresses_and_are_tried_again_soon_then_later() {
        let (mut table, now) = (table(), Instant::now());
        table.demand(&names(&["a"]), now);
        table.answered(&"a".into(), is(&["10.0.0.1"], 60), now);
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            assert!(!table.answered(&"a".into(), failed(), now));
            assert_eq!(table.wake_at(), Some(now + SECOND * pause));
            assert_eq!(held(&table, "a"), ["10.0.0.1"]);
            assert_eq!(table.problems()["a"], "no answer");
        }
        let half = NameRecords { v4: Err("refused".into()), v6: Ok((vec!["::2".parse().unwrap()], SECOND * 60)) };
        assert!(table.answered(&"a".into(), half, now));
        assert_eq!(held(&table, "a"), ["10.0.0.1", "::2"], "a family that fails keeps its addresses");
        assert!(table.problems().is_empty());
        assert_eq!(table.wake_at(), Some(now + SECOND * 60));
        table.answered(&"a".into(), failed(), now);
        assert_eq!(table.wake_at(), Some(now + SECOND), "the count of failures began anew");
    }

    #[test]
    fn unwanted_names_are_forgotten_and_too_many_are_left_out() {
        let (mut table, now) = (table(), Instant::now());
        table.demand(&names(&["a", "b"]), now);
        table.answered(&"a".into(), is(&["10.0.0.1"], 60), now);
        assert!(!table.demand(&names(&["a"]), now), "b had no addresses");
        assert!(table.demand(&names(&["b"]), now));
        assert!(!table.answered(&"a".into(), is(&["10.0.0.1"], 60), now), "an answer that comes late");
        assert!(table.values().is_empty());
        let many = (0..=NameRules::MOST_KEYS + 2).map(|n| (format!("{n:06}").into(), ())).collect();
        table.demand(&many, now);
        assert_eq!((table.left_out(), std::iter::from_fn(|| due(&mut table, now)).count()), (3, NameRules::MOST_KEYS));
        table.interrupted(now);
        assert!(due(&mut table, now).is_some(), "a question under way is due again");
        let many = (0..100).map(|n| format!("10.0.0.{n}")).collect::<Vec<_>>();
        table.answered(&"000000".into(), is(&many.iter().map(String::as_str).collect::<Vec<_>>(), 60), now);
        assert_eq!(held(&table, "000000").len(), MOST_ADDRESSES);
    }
}
