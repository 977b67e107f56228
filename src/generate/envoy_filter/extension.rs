//! Additions that no other resource holds: extension configurations, and the bootstrap.

use std::{collections::HashSet, sync::Arc};

use super::{Patching, merge};
use crate::{
    generate::check::{self, Refusal},
    proto::{
        envoy::config::{bootstrap::v3::Bootstrap, core::v3::TypedExtensionConfig},
        networking::envoy_filter::ApplyTo,
    },
    push::envoy_filters::{Patch, PatchSet},
};

/// The extension configurations that EnvoyFilters add, of these names, in the order of the filters (Istio's
/// `InsertedExtensionConfigurations`). Others than ECDS of EnvoyFilters may have the rest of the names.
#[must_use]
pub fn extension_configs<S: AsRef<str>>(set: &PatchSet, names: &[S]) -> (Vec<TypedExtensionConfig>, Vec<Refusal>) {
    let wanted: HashSet<&str> = names.iter().map(AsRef::as_ref).collect();
    let (mut configs, mut refused, mut taken) = (Vec::new(), Vec::new(), HashSet::new());
    for patch in set.of(ApplyTo::ExtensionConfig) {
        let config: TypedExtensionConfig = patch.value.as_ref().map(|value| value.decoded()).unwrap_or_default();
        if !wanted.contains(config.name.as_str()) {
            continue;
        }
        let fault = match check::encoded(&config) {
            Err(found) if config.typed_config.is_some() => Some(check::reasons(&found)),
            _ if !taken.insert(config.name.clone()) => Some("there is a configuration of that name".to_string()),
            _ => None,
        };
        match fault {
            Some(reason) => refused.push(refusal(patch, &config.name, &reason)),
            None => {
                patch.note_applied();
                configs.push(config);
            }
        }
    }
    (configs, refused)
}

fn refusal(patch: &Arc<Patch>, name: &str, reason: &str) -> Refusal {
    Refusal::new(Some(patch.filter.clone()), patch.skipped(&format!("extension configuration {name}"), reason))
}

/// Merges the patches of the bootstrap into one; they are in no resource that a running Envoy asks for.
#[must_use]
pub fn bootstrap(set: &PatchSet, mut bootstrap: Bootstrap) -> (Bootstrap, Vec<Refusal>) {
    let patching = Patching::new(set, crate::proto::networking::envoy_filter::PatchContext::Any);
    for patch in set.of(ApplyTo::Bootstrap) {
        let mut patched = bootstrap.clone();
        let merged = merge::patch(&mut patched, patch);
        let result = merged.and_then(|()| check::encoded(&patched).map_err(|found| check::reasons(&found)));
        if result.is_ok() {
            bootstrap = patched;
        }
        patching.done(patch, "the bootstrap", result.map(drop));
    }
    (bootstrap, patching.into_refusals())
}
