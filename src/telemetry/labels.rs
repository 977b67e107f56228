//! Metric labels with external values: up to a maximum number, then one label for all others.

use std::{collections::HashSet, sync::LazyLock};

use parking_lot::Mutex;

/// Maximum number of kind and name pairs with a series of their own.
const NAMED: usize = 256;
/// Label of all other pairs.
const OTHER: &str = "other";

/// The pairs with a series. The metrics recorder is one for the process, and so is the bound on its series.
static SEEN: LazyLock<Mutex<Bounded>> = LazyLock::new(Mutex::default);

/// Counts a refused object. Names come from files and clusters, and a series is never removed: after the first 256 all others
/// are counted together.
pub fn count_rejected(kind: &str, name: &str) {
    let (kind, name) = SEEN.lock().label(kind, name);
    metrics::counter!("pilot_total_rejected_configs", "type" => kind, "name" => name).increment(1);
}

/// Counts refused objects whose names are not kept.
pub fn count_rejected_others(times: u64) {
    if times > 0 {
        metrics::counter!("pilot_total_rejected_configs", "type" => OTHER, "name" => OTHER).increment(times);
    }
}

#[derive(Debug, Default)]
struct Bounded(HashSet<(String, String)>);

impl Bounded {
    fn label(&mut self, kind: &str, name: &str) -> (String, String) {
        let pair = (kind.to_string(), name.to_string());
        if self.0.contains(&pair) {
            return pair;
        }
        if self.0.len() >= NAMED {
            return (OTHER.to_string(), OTHER.to_string());
        }
        self.0.insert(pair.clone());
        pair
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_bound_share_a_label() {
        let mut seen = Bounded::default();
        let labels: HashSet<_> = (0..5000).map(|n| seen.label("ServiceEntry", &n.to_string())).collect();
        assert_eq!(labels.len(), NAMED + 1);
        assert_eq!(seen.label("ServiceEntry", "3").1, "3", "those that have a series keep it");
    }
}
