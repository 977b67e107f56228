//! The report of one process to the leader: the number of its proxies, the known history of each kind, and the objects that
//! have not reached all of its proxies.
//!
//! An object that the report does not name has reached all of them, if the process knows the history up to it; otherwise it
//! has reached none, nor any that connects since.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::reach::Reach;
use crate::model::{ConfigKey, Kind};

/// Limit of the objects that a report names; an object beyond it counts as not reached.
const MOST: usize = 500;

/// The report of one process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// The number of connected proxies.
    pub proxies: usize,
    /// Latest known position in the history of each kind.
    seen: BTreeMap<String, u64>,
    /// Generation of each object that has not reached all proxies, and the number of proxies that it has reached.
    behind: BTreeMap<String, (i64, usize)>,
    /// Whether the list was cut at the limit.
    cut: bool,
}

impl Report {
    /// A report. `behind` are the objects that have not reached all proxies.
    pub fn new<'a>(
        proxies: usize,
        seen: &BTreeMap<Kind, u64>,
        behind: impl Iterator<Item = (&'a ConfigKey, i64, Reach)>,
    ) -> Self {
        let mut behind = behind.map(|(key, generation, reach)| (key.to_string(), (generation, reach.acked)));
        let named: BTreeMap<_, _> = behind.by_ref().take(MOST).collect();
        let seen = seen.iter().map(|(kind, order)| (kind.to_string(), *order)).collect();
        Self { proxies, seen, behind: named, cut: behind.next().is_some() }
    }

    /// Reach of an object of this generation, at position `order` in the history of its kind, among the proxies of this
    /// process.
    #[must_use]
    pub fn reach(&self, key: &ConfigKey, generation: i64, order: u64) -> Reach {
        let total = self.proxies;
        let knows = self.seen.get(key.kind.as_str()).copied().unwrap_or_default() >= order;
        let acked = match self.behind.get(&key.to_string()) {
            Some((named, acked)) if *named == generation => (*acked).min(total),
            None if knows && !self.cut => total,
            _ => 0,
        };
        Reach { acked, total, lagging: usize::from(!knows) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ConfigKey {
        ConfigKey { kind: Kind::DestinationRule, namespace: "shop".into(), name: name.into() }
    }

    #[test]
    fn unnamed_objects_have_come_as_far_as_the_history_is_known() {
        let (a, seen) = (key("a"), BTreeMap::from([(Kind::DestinationRule, 100)]));
        let report = Report::new(5, &seen, [(&a, 2, Reach { acked: 3, total: 5, lagging: 0 })].into_iter());
        let report: Report = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        let acked = |name: &str, generation, order| report.reach(&key(name), generation, order).acked;
        assert_eq!((acked("a", 2, 90), acked("a", 3, 101), acked("b", 1, 100), acked("b", 1, 101)), (3, 0, 5, 0));
        let keys: Vec<ConfigKey> = (0..=MOST).map(|n| key(&n.to_string())).collect();
        let many = Report::new(5, &seen, keys.iter().map(|k| (k, 1, Reach::default())));
        assert_eq!((many.behind.len(), many.reach(&a, 1, 1).acked), (MOST, 0), "unknown");
        let empty = Report::new(0, &seen, std::iter::empty());
        assert!(empty.reach(&a, 1, 100).is_complete(), "a process without proxies lacks nothing that it knows");
        assert!(!empty.reach(&a, 1, 101).is_complete(), "a proxy that comes now lacks it");
    }
}
