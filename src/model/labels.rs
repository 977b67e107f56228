//! Labels and selectors.

use std::collections::BTreeMap;

/// Labels of an object or workload, ordered by key.
pub type Labels = BTreeMap<String, String>;

/// Whether `labels` holds every pair of `selector`. An empty selector matches everything.
#[must_use]
pub fn matches(selector: &Labels, labels: &Labels) -> bool {
    selector.iter().all(|(k, v)| labels.get(k) == Some(v))
}
