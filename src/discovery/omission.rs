//! Something that a proxy is not sent although its objects say it.

use crate::model::ConfigKey;

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
    /// The object that says it, where that is known.
    pub object: Option<ConfigKey>,
}

/// Istio's counter of objects that are refused: servers of Gateways, and resources that Envoy would refuse.
pub(super) const REJECTED: &str = "pilot_total_rejected_configs";

/// Prefix of the metrics that are gauges.
pub(super) const GAUGES: &str = "pilot_conflict_";

/// Policies that gRPC servers cannot enforce as they are written.
pub(super) const NOT_ENFORCED: &str = "pilothouse_grpc_policies_not_enforced";

/// Fields of routes, hashes and weights that gRPC clients do not apply.
pub(super) const NOT_APPLIED: &str = "pilothouse_grpc_config_not_applied";

/// Extensions whose modules a stock Envoy cannot fetch.
pub(super) const NOT_LOADED: &str = "pilothouse_extensions_not_loaded";

impl Omission {
    /// Whether it is a policy, or another setting, without the effect that it says.
    #[must_use]
    pub fn is_not_enforced(&self) -> bool {
        [NOT_ENFORCED, NOT_APPLIED, NOT_LOADED].contains(&self.metric)
    }

    /// Whether Envoy would refuse it, or a part of it.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.metric == REJECTED
    }

    /// Objects that are at odds with each other, which Istio counts and does not log.
    pub(super) fn is_conflict(&self) -> bool {
        self.metric.starts_with(GAUGES)
    }
}
