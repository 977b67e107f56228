//! The BOOTSTRAP patches of EnvoyFilters: no running Envoy is sent them, so they count at its start.
//!
//! The filters are chosen and ordered as the server does it. A patch that does not fit is left out alone and told.

use std::sync::Arc;

use serde_json::Value;

use super::mesh::MeshInputs;
use crate::{
    generate::{check::Refusal, envoy_filter},
    model::{Config, ConfigSnapshot, Mesh, Node, PushInputs, patch_value},
    proto::{
        envoy::config::bootstrap::v3::Bootstrap,
        from_json, json_to_struct,
        networking::{EnvoyFilter, envoy_filter::ApplyTo},
        to_json_of_fields,
    },
    push::{PushContext, envoy_filters::PatchSet},
};

/// Merges them into the file. The texts are about patches that are left out.
pub(super) fn apply(bootstrap: &mut Value, mesh: &MeshInputs, node: &Node) -> Vec<String> {
    let root = &*mesh.config.root_namespace;
    let of_node = |filter: &&Arc<Config>| [root, &*node.namespace].contains(&&*filter.meta.namespace);
    let patches = |spec: &EnvoyFilter| spec.config_patches.iter().any(|patch| patch.apply_to() == ApplyTo::Bootstrap);
    let is_for = |filter: &&Arc<Config>| of_node(filter) && filter.envoy_filter().is_some_and(patches);
    let filters: Vec<Arc<Config>> = mesh.filters.iter().filter(is_for).cloned().collect();
    if filters.is_empty() {
        return Vec::new();
    }
    let whole = Arc::new(Mesh { config: mesh.config.clone(), ..Mesh::default() });
    let configs = ConfigSnapshot::of(filters.iter().cloned());
    let context = PushContext::build(PushInputs { mesh: whole, configs, ..PushInputs::default() });
    let mut notes: Vec<String> = filters.iter().flat_map(|filter| faults(&context, filter)).collect();
    let set = context.view_of(node).patches;
    if set.of(ApplyTo::Bootstrap).is_empty() {
        return notes;
    }
    match merged(bootstrap, &set) {
        Ok((patched, refused)) => {
            *bootstrap = patched;
            notes.extend(refused.into_iter().map(|refusal| match refusal.object {
                Some(object) => format!("{object}: {}", refusal.message),
                None => refusal.message,
            }));
        }
        Err(reason) => {
            notes.push(format!("all patches of the bootstrap are left out, since it cannot be read: {reason}"))
        }
    }
    notes
}

/// The patched file, and the patches that do not fit.
fn merged(bootstrap: &Value, set: &PatchSet) -> Result<(Value, Vec<Refusal>), String> {
    // Configurations of types that only Envoy knows become TypedStructs.
    let known = patch_value::with_known_types(&json_to_struct(bootstrap).unwrap_or_default())?;
    let plain: Bootstrap = from_json(&known, true).map_err(|error| error.to_string())?;
    let (patched, refused) = envoy_filter::bootstrap(set, plain);
    let mut file = to_json_of_fields(&patched).map_err(|error| error.to_string())?;
    patch_value::unwrap_known_types(&mut file);
    Ok((file, refused))
}

/// The patches of the bootstrap that cannot be read.
fn faults(context: &PushContext, filter: &Arc<Config>) -> Vec<String> {
    let Some(spec) = filter.envoy_filter() else { return Vec::new() };
    let is_of_bootstrap = |fault: &&String| {
        let patches = spec.config_patches.iter().enumerate();
        let mut places = patches.filter(|(_, p)| p.apply_to() == ApplyTo::Bootstrap);
        places.any(|(index, _)| fault.starts_with(&format!("configPatches[{index}] ")))
    };
    let faults = context.envoy_filters.faults_of(filter).iter().filter(is_of_bootstrap);
    faults.map(|fault| format!("{}: {fault}", filter.key())).collect()
}
