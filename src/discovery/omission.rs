//! Something that a proxy is not sent although its objects say it.

/// Something that a proxy is not sent although its objects say it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Omission {
    /// The name of Istio's metric for it. Conflicts (`pilot_conflict_…`) are gauges of how many there are now, as in Istio;
    /// the others are counters, which are not kept here.
    pub metric: &'static str,
    /// The resource: a listener, a Gateway, a secret.
    pub resource: String,
    /// Why, for a person.
    pub message: String,
}
