//! The demands of a Telemetry that are not met: providers that the mesh settings do not have or that cannot be used, filters
//! that Envoy does not evaluate, a namespace whose place is taken.

use std::{collections::BTreeSet, sync::Arc};

use super::{filter, providers};
use crate::{
    generate::listener::{access_log, tracing},
    model::{Config, Kind, PolicyTargets},
    proto::mesh::mesh_config::{ExtensionProvider, extension_provider::Provider},
    push::PushContext,
};

/// The reasons a Telemetry has not the whole effect that it asks for; none where it has.
#[must_use]
pub fn unmet(context: &PushContext, config: &Arc<Config>) -> Option<String> {
    let telemetry = config.telemetry()?;
    let mut reasons: BTreeSet<String> = BTreeSet::new();
    let logs = telemetry.access_logging.iter().flat_map(|l| providers::names(&l.providers));
    reasons.extend(logs.filter_map(|name| {
        of_provider(context, name, |p| match access_log::of_provider(context, p)? {
            Some(_) => access_log::check_formats(&context.mesh().config, p),
            None => Err("it is none for access logs".to_string()),
        })
    }));
    let spans = telemetry.tracing.iter().filter_map(|t| providers::names(&t.providers).next());
    reasons.extend(spans.filter_map(|name| of_provider(context, name, |p| tracing::usable(context, p))));
    let metrics = telemetry.metrics.iter().flat_map(|m| providers::names(&m.providers));
    reasons.extend(metrics.filter_map(|name| {
        of_provider(context, name, |p| match &p.provider {
            Some(Provider::Prometheus(_)) => Ok(()),
            _ => Err("it is none for metrics".to_string()),
        })
    }));
    let filters = telemetry.access_logging.iter().filter_map(|l| l.filter.as_ref());
    reasons.extend(
        filters.filter_map(|f| filter::access_log(&f.expression).err()).map(|reason| format!("filter: {reason}")),
    );
    reasons.extend(tracing::refused_tags(telemetry));
    reasons.extend(taken(context, config));
    (!reasons.is_empty()).then(|| reasons.into_iter().collect::<Vec<_>>().join("; "))
}

fn of_provider(
    context: &PushContext,
    name: &str,
    usable: impl Fn(&ExtensionProvider) -> Result<(), String>,
) -> Option<String> {
    let found = providers::find(&context.mesh().config, name)
        .ok_or_else(|| "the mesh settings have none of this name".to_string());
    found.and_then(usable).err().map(|reason| format!("provider {name:?}: {reason}"))
}

/// One Telemetry without targets counts in a namespace: the oldest.
fn taken(context: &PushContext, config: &Arc<Config>) -> Option<String> {
    let are_all = |c: &Config| PolicyTargets::of(c).is_some_and(|targets| targets.are_all());
    if !are_all(config) {
        return None;
    }
    let all = context.inputs.configs.list(Kind::Telemetry).iter();
    let first = all.filter(|c| c.meta.namespace == config.meta.namespace).find(|c| are_all(c))?;
    let name = &first.meta.name;
    (first.key() != config.key())
        .then(|| format!("it has no effect: {name:?}, which is older, counts for all workloads of the namespace"))
}
