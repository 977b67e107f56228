//! Telemetry of one class of listeners: access logs, tracing and metrics, of the Telemetries that apply to the workload, of the
//! mesh's default providers, or of the mesh settings alone (Istio's `model/telemetry.go`).
//!
//! `logs`, `spans` and `overrides` merge; `metrics` has a stock Envoy count; `providers` finds extension providers and their services; `filter` is the CEL that
//! Envoy takes. Invariant: a provider that cannot be used leaves nothing out but its own logs, spans or metrics, and is told.

pub mod filter;
pub mod logs;
pub mod metrics;
mod mode;
pub mod overrides;
pub mod providers;
pub mod spans;
mod unmet;

pub use unmet::unmet;

use std::sync::Arc;

use self::metrics::CountingLogs;
use super::{
    access_log::{self, AccessLogs},
    inputs::Inputs,
    stats::StatsFilters,
    tracing::Spans,
};
use crate::{
    generate::{check::Refusal, proxy_config::ListenerClass},
    model::{Config, ConfigKey},
    proto::{
        envoy::config::accesslog::v3::AccessLog,
        istio::telemetry::v1alpha1::{AccessLogging, Telemetry},
    },
    push::PushContext,
};

/// The parts of listeners of one class that tell about their traffic.
#[derive(Debug)]
pub struct ClassTelemetry {
    /// The access logs.
    pub logs: AccessLogs,
    /// Tracing.
    pub spans: Spans,
    /// Filters that count, in Istio's build of Envoy.
    pub stats: StatsFilters,
    /// Whether a stock Envoy counts, so that it exchanges metadata with its peers.
    pub counts: bool,
    /// Logs, spans and tags that are left out, with the Telemetry that asks for them.
    pub refused: Vec<Refusal>,
}

impl ClassTelemetry {
    /// Merges the Telemetries of the workload.
    #[must_use]
    pub fn of(inputs: &Inputs, class: ListenerClass) -> Self {
        let applying = inputs.context.telemetries.applying(inputs.view, None);
        let told = Told { applying: &applying };
        let specs: Vec<&Telemetry> = applying.iter().filter_map(|config| config.telemetry()).collect();
        let mut refused = Vec::new();
        let logs = logs_of(inputs.context, &specs, class, |provider, reason| {
            refused.push(told.refusal(
                provider,
                names_of_logs,
                &format!("access log of provider {provider:?}"),
                &reason,
            ));
        });
        let logs = match logs {
            Some(logs) => AccessLogs::of_telemetry(logs, inputs.mesh()),
            None => {
                let (logs, outcome) = AccessLogs::of_mesh(inputs.mesh());
                let told =
                    outcome.err().map(|reason| format!("the access log of the mesh settings is left out: {reason}"));
                refused.extend(told.map(|message| Refusal::new(None, message)));
                logs
            }
        };
        let (spans, untraced) = Spans::of(inputs, spans::merge(&specs, inputs.mesh(), class).as_ref());
        refused.extend(
            untraced
                .into_iter()
                .map(|(provider, message)| Refusal::new(told.object(&provider, names_of_spans), message)),
        );
        let wanted = overrides::of_telemetries(&specs, inputs.mesh());
        let stats = StatsFilters::of(inputs, class, &wanted);
        let counting = CountingLogs::of(inputs, class, &wanted);
        let counts = !counting.is_empty();
        let of_metrics = applying.iter().rev().find(|c| c.telemetry().is_some_and(|t| !t.metrics.is_empty()));
        let object = of_metrics.map(|config| config.key());
        refused.extend(counting.refused.iter().map(|reason| Refusal::new(object.clone(), reason.clone())));
        Self { logs: logs.with(counting), spans, stats, counts, refused }
    }
}

/// The access logs of Telemetries and of default providers; `None` where neither asks for one, so that the mesh settings
/// count. `refuse` is told a provider and the reason its log is left out.
fn logs_of(
    context: &PushContext,
    specs: &[&Telemetry],
    class: ListenerClass,
    mut refuse: impl FnMut(&str, String),
) -> Option<Vec<AccessLog>> {
    let wanted = logs::of_telemetries(specs, &context.mesh().config, class)?;
    let (mut found, mut logs) = (false, Vec::new());
    for spec in &wanted {
        let log = match access_log::of_provider(context, spec.provider) {
            Ok(None) => continue,
            Ok(Some(log)) => log,
            Err(reason) => {
                refuse(&spec.provider.name, reason);
                continue;
            }
        };
        // As in Istio, the mesh settings count where no provider can log; a log that Envoy would refuse has no such substitute.
        found = true;
        let filtered = |()| match spec.filter {
            Some(expression) => access_log::filtered(log, expression),
            None => Ok(log),
        };
        match access_log::check_formats(&context.mesh().config, spec.provider).and_then(filtered) {
            Ok(log) => logs.extend(Some(log).filter(|_| !spec.disabled)),
            Err(reason) => refuse(&spec.provider.name, reason),
        }
    }
    found.then_some(logs)
}

/// Telemetries of a workload, to find the one that asks for a provider.
struct Told<'a> {
    applying: &'a [&'a Arc<Config>],
}

impl Told<'_> {
    /// The last Telemetry that names the provider.
    fn object(&self, provider: &str, names: impl Fn(&Telemetry) -> Vec<&str>) -> Option<ConfigKey> {
        let naming = |config: &&&Arc<Config>| config.telemetry().is_some_and(|t| names(t).contains(&provider));
        self.applying.iter().rev().find(naming).map(|config| config.key())
    }

    fn refusal(&self, provider: &str, names: impl Fn(&Telemetry) -> Vec<&str>, what: &str, reason: &str) -> Refusal {
        Refusal::new(self.object(provider, names), format!("{what} is left out: {reason}"))
    }
}

fn names_of_logs(telemetry: &Telemetry) -> Vec<&str> {
    telemetry.access_logging.iter().flat_map(|l: &AccessLogging| providers::names(&l.providers)).collect()
}

fn names_of_spans(telemetry: &Telemetry) -> Vec<&str> {
    telemetry.tracing.iter().flat_map(|t| providers::names(&t.providers)).collect()
}
