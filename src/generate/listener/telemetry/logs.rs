//! Which providers log, and what: the access logging of Telemetries merged (Istio's `mergeLogs`).
//!
//! A level is one Telemetry. The providers of the last level that names some for the mode are in scope; of these each entry
//! decides anew, in order, and one without providers is for those of the entry before.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    mode::mode,
    providers::{self, defaults},
};
use crate::{
    generate::proxy_config::ListenerClass,
    proto::{
        istio::telemetry::v1alpha1::{AccessLogging, Telemetry, WorkloadMode},
        mesh::{MeshConfig, mesh_config::ExtensionProvider},
    },
};

/// One provider that logs, or is told not to.
#[derive(Debug, Clone, PartialEq)]
pub struct LogSpec<'a> {
    /// The provider.
    pub provider: &'a ExtensionProvider,
    /// It logs nothing.
    pub disabled: bool,
    /// The CEL expression that a log line has to meet.
    pub filter: Option<&'a str>,
}

/// Whether a provider is off, and its filter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Decision<'a> {
    disabled: bool,
    filter: Option<&'a str>,
}

/// The providers that Telemetries and default providers decide about, by name; those that the mesh settings do not have are
/// left out. `None` where neither says anything.
#[must_use]
pub fn of_telemetries<'a>(
    specs: &[&'a Telemetry],
    mesh: &'a MeshConfig,
    class: ListenerClass,
) -> Option<Vec<LogSpec<'a>>> {
    let levels: Vec<&[AccessLogging]> =
        specs.iter().map(|t| t.access_logging.as_slice()).filter(|logging| !logging.is_empty()).collect();
    let defaults = defaults(mesh, |d| &d.access_logging);
    if levels.is_empty() && defaults.is_empty() {
        return None;
    }
    let spec = |(name, decision): (&str, Decision<'a>)| {
        let provider = providers::find(mesh, name)?;
        Some(LogSpec { provider, disabled: decision.disabled, filter: decision.filter })
    };
    let mut found: Vec<LogSpec> = merge(&levels, defaults, mode(class)).into_iter().filter_map(spec).collect();
    found.sort_by(|a, b| a.provider.name.cmp(&b.provider.name));
    Some(found)
}

fn merge<'a>(
    levels: &[&'a [AccessLogging]],
    defaults: &'a [String],
    mode: WorkloadMode,
) -> BTreeMap<&'a str, Decision<'a>> {
    let defaults: Vec<&str> = defaults.iter().map(String::as_str).collect();
    if levels.is_empty() {
        return defaults.into_iter().map(|name| (name, Decision::default())).collect();
    }
    let mut in_scope: BTreeSet<&str> = defaults.iter().copied().collect();
    let mut last: BTreeMap<&str, Decision<'a>> = BTreeMap::new();
    for level in levels {
        let mut named = BTreeSet::new();
        for logging in level.iter().filter(|logging| concerns(logging, mode)) {
            let filter = logging.filter.as_ref().map(|filter| filter.expression.as_str());
            for name in providers::names(&logging.providers) {
                named.insert(name);
                last.insert(name, Decision { disabled: false, filter });
            }
        }
        if !named.is_empty() {
            in_scope = named;
        }
    }
    let mut decided = BTreeMap::new();
    let mut parents = defaults;
    for logging in levels.iter().copied().flatten() {
        let names: Vec<&str> = providers::names(&logging.providers).collect();
        if !names.is_empty() {
            parents = names;
        }
        for name in parents.iter().filter(|name| in_scope.contains(*name) && concerns(logging, mode)) {
            let enabled = || last.get(name).copied().unwrap_or_default();
            let off = Decision { disabled: true, filter: None };
            decided.insert(*name, if logging.disabled == Some(true) { off } else { enabled() });
        }
    }
    decided
}

fn concerns(logging: &AccessLogging, mode: WorkloadMode) -> bool {
    logging
        .r#match
        .as_ref()
        .is_none_or(|selector| selector.mode() == WorkloadMode::ClientAndServer || selector.mode() == mode)
}
