//! Lists, selectors and names in the form in which Istio's messages have them.

use crate::model::Labels;

/// A list as Go prints it: `[a b]`.
pub(super) fn list<T: std::fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    format!("[{}]", items.join(" "))
}

/// A selector as Kubernetes prints it: `a=b,c=d`.
pub(super) fn selector(labels: &Labels) -> String {
    let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

/// The path of the first label of a selector below `path`.
pub(super) fn first_label(path: &str, labels: &Labels) -> String {
    labels.keys().next().map_or_else(|| path.to_string(), |key| format!("{path}.{key}"))
}

/// The text for a reference that leads nowhere.
pub(super) fn not_found(what: &str, value: &str) -> String {
    format!("Referenced {what} not found: {value:?}")
}
