//! The beginning of a term: the writes before it must be known before the first write in it. Pure.
//!
//! Statuses are computed from objects as the watches brought them. A new leader may be behind its predecessor; it waits
//! until its publication holds everything received up to a moment after its term began.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::model::ConfigSnapshot;

/// Greatest delay of a working watch.
const WATCH_LAG: Duration = Duration::from_secs(1);

/// One term of leading.
#[derive(Debug)]
pub struct Term {
    /// Number of the term.
    pub number: u64,
    began: Instant,
    /// The publication and the store's content at the mark, when the watches had delivered everything.
    mark: Option<(u64, Arc<ConfigSnapshot>)>,
    /// The publication after which another one was requested.
    asked: Option<u64>,
    caught_up: bool,
}

impl Term {
    /// A term that begins now.
    #[must_use]
    pub const fn new(number: u64, now: Instant) -> Self {
        Self { number, began: now, mark: None, asked: None, caught_up: false }
    }

    /// Whether this process may write yet: publication `version`, made of `published`, is in force, and the store holds
    /// `stored`. `publish` requests another publication: not every change brings one.
    pub fn may_write(
        &mut self,
        now: Instant,
        version: u64,
        published: &ConfigSnapshot,
        stored: impl FnOnce() -> Arc<ConfigSnapshot>,
        publish: impl FnOnce(),
    ) -> bool {
        if self.caught_up {
            return true;
        }
        if now.saturating_duration_since(self.began) < WATCH_LAG {
            return false;
        }
        let (marked, stored) = self.mark.get_or_insert_with(|| (version, stored()));
        // The next publication may have begun before the mark; the one after it has not.
        self.caught_up = version >= *marked + 2 || same_lists(published, stored);
        if !self.caught_up && self.asked != Some(version) {
            self.asked = Some(version);
            publish();
        }
        self.caught_up
    }
}

fn same_lists(a: &ConfigSnapshot, b: &ConfigSnapshot) -> bool {
    a.by_kind.len() == b.by_kind.len()
        && a.by_kind.iter().all(|(kind, list)| b.by_kind.get(kind).is_some_and(|other| Arc::ptr_eq(list, other)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{Origin, decode};

    #[test]
    fn nothing_is_written_before_the_received_changes_are_in_force() {
        let rule = json!({"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
            "metadata": {"name": "a", "namespace": "n"}, "spec": {"host": "h"}});
        let config = Arc::new(decode::from_value(&rule, Origin::default()).unwrap());
        let (old, new) = (ConfigSnapshot::default(), Arc::new(ConfigSnapshot::of([config])));
        let start = Instant::now();
        let (soon, later) = (start + WATCH_LAG / 2, start + WATCH_LAG);
        let mut asked = 0;
        let mut term = Term::new(1, start);
        assert!(!term.may_write(soon, 4, &new, || new.clone(), || asked += 1), "a watch may be late");
        for version in [4, 4, 5, 5] {
            assert!(!term.may_write(later, version, &old, || new.clone(), || asked += 1));
        }
        assert!(term.may_write(later, 6, &old, || unreachable!(), || asked += 1), "begun after the mark");
        assert_eq!(asked, 2, "once for each publication");
        let mut term = Term::new(2, start);
        assert!(term.may_write(later, 4, &new, || new.clone(), || unreachable!()));
        assert!(term.may_write(later, 5, &old, || unreachable!(), || unreachable!()));
    }
}
