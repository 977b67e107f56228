//! The gauge of patches: applied or not by EnvoyFilter and target, and those that were skipped. A filter that is gone, or mended,
//! is 0 again.

use std::collections::{BTreeMap, BTreeSet};

use metrics::gauge;
use parking_lot::Mutex;

use super::super::omission::{Omission, REJECTED};
use crate::{
    model::{ConfigKey, Kind},
    proto::networking::envoy_filter::ApplyTo,
    push::{PushContext, envoy_filters::PatchSet},
};

/// Istio's gauge of patches that were applied (1) or not (0), by EnvoyFilter and target.
const STATUS: &str = "pilot_envoy_filter_status";

/// The series of the gauge that are not 0, or may be.
#[derive(Debug, Default)]
pub(super) struct PatchStatus {
    /// EnvoyFilters with a patch that was skipped.
    faulty: Mutex<BTreeSet<ConfigKey>>,
    /// EnvoyFilters by the targets of their patches.
    told: Mutex<BTreeMap<ConfigKey, BTreeSet<&'static str>>>,
}

impl PatchStatus {
    /// A patch of this object was skipped; objects of other kinds are passed over.
    pub(super) fn skipped(&self, filter: &ConfigKey) {
        if filter.kind == Kind::EnvoyFilter && self.faulty.lock().insert(filter.clone()) {
            set_error(filter, 1.0);
        }
    }

    /// Only the EnvoyFilters of these omissions have patches that are skipped now.
    pub(super) fn settle(&self, omissions: &[Omission]) {
        let of_filters = omissions.iter().filter(|o| o.metric == REJECTED).filter_map(|o| o.object.as_ref());
        let now: BTreeSet<ConfigKey> = of_filters.filter(|o| o.kind == Kind::EnvoyFilter).cloned().collect();
        let mut faulty = self.faulty.lock();
        faulty.difference(&now).for_each(|filter| set_error(filter, 0.0));
        now.difference(&faulty).for_each(|filter| set_error(filter, 1.0));
        *faulty = now;
    }

    /// Tells which of these patches were applied; filters that are gone have none.
    pub(super) fn applied(&self, context: &PushContext, patches: &PatchSet) {
        let mut told = self.told.lock();
        if !told.is_empty() {
            let here: BTreeSet<ConfigKey> =
                context.inputs.configs.list(Kind::EnvoyFilter).iter().map(|config| config.key()).collect();
            told.retain(|filter, targets| {
                let stays = here.contains(filter);
                if !stays {
                    targets.iter().for_each(|target| set_applied(filter, target, false));
                }
                stays
            });
        }
        for patch in patches.all() {
            let target = target(patch.apply_to);
            told.entry(patch.filter.clone()).or_default().insert(target);
            set_applied(&patch.filter, target, patch.is_applied());
        }
    }
}

fn name(filter: &ConfigKey) -> String {
    format!("{}/{}", filter.namespace, filter.name)
}

fn set_error(filter: &ConfigKey, value: f64) {
    gauge!(STATUS, "name" => name(filter), "result" => "error").set(value);
}

fn set_applied(filter: &ConfigKey, target: &'static str, is_applied: bool) {
    let value = f64::from(u8::from(is_applied));
    gauge!(STATUS, "name" => name(filter), "patch" => target, "result" => "applied").set(value);
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

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    fn filter(name: &str) -> ConfigKey {
        ConfigKey { kind: Kind::EnvoyFilter, namespace: "shop".into(), name: name.into() }
    }

    fn omission(object: &ConfigKey) -> Omission {
        let (resource, message) = (String::new(), String::new());
        Omission { metric: REJECTED, resource, message, object: Some(object.clone()) }
    }

    #[test]
    fn a_filter_that_is_mended_or_gone_has_no_error() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let errors = || {
            let page = recorder.handle().render();
            let lines = page.lines().filter(|line| line.starts_with(STATUS)).map(str::to_string);
            lines.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        let line = |name: &str, value: u8| format!("{STATUS}{{name=\"shop/{name}\",result=\"error\"}} {value}");
        metrics::with_local_recorder(&recorder, || {
            let status = PatchStatus::default();
            status.skipped(&filter("a"));
            status.skipped(&ConfigKey { kind: Kind::Gateway, ..filter("other") });
            assert_eq!(errors(), [line("a", 1)]);
            status.settle(&[omission(&filter("a")), omission(&filter("b"))]);
            assert_eq!(errors(), [line("a", 1), line("b", 1)]);
            status.settle(&[omission(&filter("b"))]);
            assert_eq!(errors(), [line("a", 0), line("b", 1)]);
            status.skipped(&filter("a"));
            assert_eq!(errors(), [line("a", 1), line("b", 1)]);
            status.settle(&[]);
            assert_eq!(errors(), [line("a", 0), line("b", 0)]);
        });
    }
}
