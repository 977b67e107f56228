//! The metrics of Telemetries merged: for each provider and side the metrics that are off, and the tags that are set or
//! removed (Istio's `mergeMetrics`).

use std::collections::{BTreeMap, BTreeSet};

use super::providers::{self, defaults};
use crate::{
    generate::proxy_config::ListenerClass,
    proto::{
        istio::telemetry::v1alpha1::{
            MetricSelector, Metrics, MetricsOverrides, Telemetry, WorkloadMode,
            metric_selector::{IstioMetric, MetricMatch},
            metrics_overrides::tag_override::Operation,
        },
        mesh::MeshConfig,
        wkt,
    },
};

/// Istio's metrics by the names of its API, in the order of these, and their names in Prometheus behind `istio_`.
pub const METRICS: [(&str, &str); 10] = [
    ("GRPC_REQUEST_MESSAGES", "request_messages_total"),
    ("GRPC_RESPONSE_MESSAGES", "response_messages_total"),
    ("REQUEST_COUNT", "requests_total"),
    ("REQUEST_DURATION", "request_duration_milliseconds"),
    ("REQUEST_SIZE", "request_bytes"),
    ("RESPONSE_SIZE", "response_bytes"),
    ("TCP_CLOSED_CONNECTIONS", "tcp_connections_closed_total"),
    ("TCP_OPENED_CONNECTIONS", "tcp_connections_opened_total"),
    ("TCP_RECEIVED_BYTES", "tcp_received_bytes_total"),
    ("TCP_SENT_BYTES", "tcp_sent_bytes_total"),
];

/// The changes of one metric.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricOverride<'a> {
    /// The metric is not counted.
    pub disabled: bool,
    /// Tags by name: an expression that is their value, or `None` where the tag is removed.
    pub tags: BTreeMap<&'a str, Option<&'a str>>,
}

/// The metrics of one side of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SideMetrics<'a> {
    /// Nothing is counted.
    pub disabled: bool,
    /// Changes by the name that the API has for the metric.
    pub overrides: BTreeMap<&'a str, MetricOverride<'a>>,
}

/// The metrics of one provider.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProviderMetrics<'a> {
    /// Those of requests that the workload makes, and of gateways.
    pub client: SideMetrics<'a>,
    /// Those of requests that it serves.
    pub server: SideMetrics<'a>,
    /// Time between reports of open TCP connections.
    pub interval: Option<wkt::Duration>,
}

impl<'a> ProviderMetrics<'a> {
    /// The metrics of a class of listeners.
    #[must_use]
    pub const fn side_of(&self, class: ListenerClass) -> &SideMetrics<'a> {
        match class {
            ListenerClass::SidecarInbound => &self.server,
            ListenerClass::SidecarOutbound | ListenerClass::Gateway => &self.client,
        }
    }

    fn side(&mut self, mode: WorkloadMode) -> &mut SideMetrics<'a> {
        if mode == WorkloadMode::Client { &mut self.client } else { &mut self.server }
    }
}

/// The metrics of a workload by the names of providers.
#[must_use]
pub fn of_telemetries<'a>(specs: &[&'a Telemetry], mesh: &'a MeshConfig) -> BTreeMap<&'a str, ProviderMetrics<'a>> {
    let metrics: Vec<&Metrics> = specs.iter().flat_map(|t| &t.metrics).collect();
    let defaults: Vec<&str> = defaults(mesh, |d| &d.metrics).iter().map(String::as_str).collect();
    let mut found: BTreeMap<&str, ProviderMetrics> = BTreeMap::new();
    if metrics.is_empty() {
        found.extend(defaults.iter().map(|name| (*name, ProviderMetrics::default())));
        return found;
    }
    let named = |m: &&'a Metrics| Some(providers::names(&m.providers).collect::<Vec<_>>()).filter(|n| !n.is_empty());
    let in_scope = metrics.iter().rev().find_map(named).unwrap_or_else(|| defaults.clone());
    let in_scope: BTreeSet<&str> = in_scope.into_iter().collect();
    let mut parents = defaults;
    for given in &metrics {
        parents = named(given).unwrap_or(parents);
        for provider in parents.iter().filter(|name| in_scope.contains(*name)) {
            let of = found.entry(provider).or_default();
            of.interval = given.reporting_interval.or(of.interval);
            given.overrides.iter().for_each(|changed| apply(of, changed));
        }
    }
    for of in found.values_mut() {
        for side in [&mut of.client, &mut of.server] {
            if side.disabled {
                side.overrides.clear();
            }
        }
    }
    found
}

fn apply<'a>(of: &mut ProviderMetrics<'a>, changed: &'a MetricsOverrides) {
    let selector = changed.r#match.as_ref();
    let modes = match selector.map(MetricSelector::mode) {
        Some(mode @ (WorkloadMode::Client | WorkloadMode::Server)) => vec![mode],
        _ => vec![WorkloadMode::Client, WorkloadMode::Server],
    };
    let metric = selector.and_then(|s| s.metric_match.as_ref());
    let all = matches!(metric, None | Some(MetricMatch::Metric(0)));
    for mode in modes {
        let side = of.side(mode);
        if all && changed.disabled == Some(true) {
            side.disabled = true;
            continue;
        }
        // A later entry that changes a metric turns all of them on again.
        side.disabled = false;
        for name in selected(metric) {
            let metric = side.overrides.entry(name).or_default();
            metric.disabled = changed.disabled.unwrap_or(metric.disabled);
            for (tag, change) in &changed.tag_overrides {
                let value = Some(change.value.as_str()).filter(|_| change.operation() == Operation::Upsert);
                metric.tags.insert(tag, value);
            }
        }
    }
}

/// The names of the metrics that are meant.
fn selected(metric: Option<&MetricMatch>) -> Vec<&str> {
    match metric {
        Some(MetricMatch::CustomMetric(name)) => vec![name],
        Some(MetricMatch::Metric(number)) if *number != 0 => {
            IstioMetric::try_from(*number).ok().map(|metric| metric.as_str_name()).into_iter().collect()
        }
        _ => METRICS.iter().map(|(name, _)| *name).collect(),
    }
}

/// The name of a metric in Prometheus behind `istio_`; custom ones have their own.
#[must_use]
pub fn exported(name: &str) -> &str {
    METRICS.iter().find(|(known, _)| *known == name).map_or(name, |(_, exported)| exported)
}
