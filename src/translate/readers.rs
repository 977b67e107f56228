//! Kubernetes' label selectors, as a function, for tests that select by anything.
//!
//! Built for tests only. Nothing here decides anything.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::selector;
use crate::model::Labels;

/// Whether a selector, as JSON, selects an object with these labels; `None` for a value that is no selector.
#[must_use]
pub fn selects(selector: &Value, labels: &Labels) -> Option<bool> {
    let selector: LabelSelector = serde_json::from_value(selector.clone()).ok()?;
    Some(selector::selects(&selector, |key| labels.get(key).map(String::as_str)))
}
