//! Kubernetes' label selectors. An invalid selector selects nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::model::Labels;

/// The label that Kubernetes sets on every namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Whether the namespace matches the selector.
pub fn selects_namespace(selector: &LabelSelector, name: &str, labels: &Labels) -> bool {
    selects(selector, |key| match key {
        NAME_LABEL => Some(name),
        key => labels.get(key).map(String::as_str),
    })
}

/// Whether an object matches the selector; `value` looks up a label.
pub fn selects<'a>(selector: &LabelSelector, value: impl Fn(&str) -> Option<&'a str>) -> bool {
    let by_label = selector.match_labels.iter().flatten().all(|(key, wanted)| value(key) == Some(wanted));
    let by_expression = selector.match_expressions.iter().flatten().all(|expression| {
        let values = expression.values.as_deref().unwrap_or_default();
        let found = value(&expression.key);
        match expression.operator.as_str() {
            "In" => found.is_some_and(|v| values.iter().any(|w| w == v)),
            "NotIn" => !values.is_empty() && found.is_none_or(|v| values.iter().all(|w| w != v)),
            "Exists" => values.is_empty() && found.is_some(),
            "DoesNotExist" => values.is_empty() && found.is_none(),
            _ => false,
        }
    });
    by_label && by_expression
}
