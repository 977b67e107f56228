//! The gauge of patches: applied or not by EnvoyFilter and target, and those that were skipped.

use metrics::gauge;

use crate::{
    model::{ConfigKey, Kind},
    proto::networking::envoy_filter::ApplyTo,
    push::envoy_filters::Patch,
};

/// Istio's gauge of patches that were applied (1) or not (0), by EnvoyFilter and target.
const STATUS: &str = "pilot_envoy_filter_status";

/// Tells whether a patch was applied.
pub(super) fn count_applied(patch: &Patch) {
    let name = format!("{}/{}", patch.filter.namespace, patch.filter.name);
    let applied = f64::from(u8::from(patch.is_applied()));
    gauge!(STATUS, "name" => name, "patch" => target(patch.apply_to), "result" => "applied").set(applied);
}

/// Counts a patch that was skipped.
pub(super) fn count_skipped(filter: &ConfigKey) {
    if filter.kind == Kind::EnvoyFilter {
        let name = format!("{}/{}", filter.namespace, filter.name);
        gauge!(STATUS, "name" => name, "result" => "error").set(1.0);
    }
}

/// Istio's names of targets.
const fn target(apply_to: ApplyTo) -> &'static str {
    match apply_to {
        ApplyTo::Cluster => "cluster",
        ApplyTo::Listener => "listener",
        ApplyTo::FilterChain => "filterchain",
        ApplyTo::NetworkFilter => "networkfilter",
        ApplyTo::HttpFilter => "httpfilter",
        ApplyTo::ListenerFilter => "listenerfilter",
        ApplyTo::RouteConfiguration | ApplyTo::HttpRoute => "route",
        ApplyTo::VirtualHost => "vhost",
        ApplyTo::ExtensionConfig => "extensionconfig",
        ApplyTo::Bootstrap | ApplyTo::Invalid => "bootstrap",
    }
}
