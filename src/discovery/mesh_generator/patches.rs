//! EnvoyFilters in the composition: each resource is patched where it is made, before it is encoded and shared.

use std::{cell::RefCell, collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use prost::{Message, Name};

use super::{
    super::{
        generator::{Part, Slot},
        omission::Omission,
    },
    MeshGenerator, extensions,
    left_out::omission,
};
use crate::{
    generate::{
        check::Refusal,
        cluster::ClusterInputs,
        envoy_filter::{Patching, extension_configs, own_context, service_context},
        names::parse_subset_key,
    },
    proto::{
        envoy::config::{
            cluster::v3::Cluster,
            listener::v3::{Filter, Listener, filter::ConfigType},
        },
        envoy::extensions::filters::network::http_connection_manager::v3::{
            HttpConnectionManager, http_connection_manager::RouteSpecifier,
        },
        networking::envoy_filter::{ApplyTo, PatchContext},
        wkt,
    },
    push::{ProxyView, PushContext},
    xds::{Resource, ResourceType},
};

/// Refused patches as omissions of a resource.
pub(super) fn told(resource: &str, refused: Vec<Refusal>) -> impl Iterator<Item = Omission> {
    refused.into_iter().map(move |refusal| omission(resource, refusal))
}

impl MeshGenerator {
    /// A cluster of a service with its patches, whose key is given, as it is shared by all that have the same ones.
    pub(super) fn patched_cluster(
        &self,
        mut patching: Patching<'_>,
        patch_key: u128,
        inputs: &ClusterInputs<'_>,
        refused: &Mutex<BTreeSet<Omission>>,
    ) -> Option<Arc<Resource>> {
        let url = Cluster::type_url();
        // One with patches that do not fit is not kept, so that each generation reports them.
        let reported = RefCell::new(None);
        let make = || {
            let name = inputs.name();
            let patched = inputs.checked_after(|cluster| patching.encoded_cluster(cluster, &[]));
            let (cluster, bytes) =
                patched.map_err(|refusal| refused.lock().insert(omission(&name, *refusal))).ok()??;
            let made = Resource::of_parts(cluster.name, &url, &bytes);
            let skipped = patching.into_refusals();
            if skipped.is_empty() {
                return Some(made);
            }
            refused.lock().extend(told(&name, skipped));
            reported.replace(Some(Arc::new(made)));
            None
        };
        let kept = self.clusters.get_or(inputs.key() ^ patch_key, make);
        kept.or_else(|| reported.take())
    }

    /// Clusters that are made one by one, with their patches; the additions follow.
    pub(super) fn patched_clusters(
        view: &ProxyView,
        context: PatchContext,
        clusters: Vec<Cluster>,
        left_out: &mut BTreeSet<Omission>,
    ) -> Vec<Cluster> {
        if view.patches.of(ApplyTo::Cluster).is_empty() {
            return clusters;
        }
        let mut patching = Patching::new(&view.patches, context);
        let patch = |cluster: Cluster| {
            let port = parse_subset_key(&cluster.name).map_or(0, |(_, _, _, port)| port);
            let targets = view.targets.iter().filter(|target| target.target_port == port);
            let hosts: Vec<&str> = targets.map(|target| &*target.service.hostname).collect();
            patching.cluster(cluster, &hosts)
        };
        let patched = clusters.into_iter().filter_map(patch).collect();
        left_out.extend(told("clusters", patching.into_refusals()));
        patched
    }

    /// The clusters that EnvoyFilters add to these.
    pub(super) fn added_clusters(
        view: &ProxyView,
        context: PatchContext,
        taken: &[Arc<Resource>],
        left_out: &mut BTreeSet<Omission>,
    ) -> Vec<Cluster> {
        let mut patching = Patching::new(&view.patches, context);
        let added = patching.added_clusters(taken.iter().map(|resource| &**resource.name()));
        left_out.extend(told("clusters", patching.into_refusals()));
        added
    }

    /// Listeners with their patches, and those that are added.
    pub(super) fn patched_listeners(
        slot: &Slot,
        mut listeners: Vec<Listener>,
        left_out: &mut BTreeSet<Omission>,
    ) -> Vec<Listener> {
        let view = &*slot.view;
        if view.patches.is_empty() {
            return listeners;
        }
        let context = if slot.part == Part::Outbound { service_context(view) } else { own_context(view) };
        let mut patching = Patching::new(&view.patches, context);
        if context == PatchContext::SidecarInbound {
            listeners.iter_mut().for_each(|listener| inline_routes(&mut patching, listener));
        }
        let listeners = patching.listeners(listeners, !view.is_istio_proxy());
        left_out.extend(told("listeners", patching.into_refusals()));
        listeners
    }

    /// Extension configurations by name: those that EnvoyFilters add, and modules.
    pub(super) fn extensions(&self, context: &PushContext, slot: &Slot, names: &[Arc<str>]) -> Vec<Arc<Resource>> {
        let (configs, refused) = extension_configs(&slot.view.patches, names);
        let refused = told("extensions", refused).collect();
        self.tell(slot, ResourceType::Extension, Some(names), refused);
        self.count_patches(context, slot);
        let added = configs.iter().map(|config| Arc::new(Resource::encode(config.name.as_str(), config)));
        added.chain(extensions::named(context, slot, names)).collect()
    }

    /// Sets the gauge for the patches of a slot, where it is asked for.
    pub(super) fn count_patches(&self, context: &PushContext, slot: &Slot) {
        if context.features().enable_envoy_filter_metrics {
            self.patch_status.applied(context, &slot.view.patches);
        }
    }
}

/// Patches the route configurations that inbound connection managers hold.
fn inline_routes(patching: &mut Patching<'_>, listener: &mut Listener) {
    if !patching.patches_any_routes() {
        return;
    }
    let chains = listener.filter_chains.iter_mut().chain(&mut listener.default_filter_chain);
    for filter in chains.flat_map(|chain| &mut chain.filters) {
        if let Some(patched) = patched_manager(patching, filter) {
            filter.config_type = Some(ConfigType::TypedConfig(patched));
        }
    }
}

fn patched_manager(patching: &mut Patching<'_>, filter: &Filter) -> Option<wkt::Any> {
    let Some(ConfigType::TypedConfig(packed)) = &filter.config_type else { return None };
    if packed.type_url != HttpConnectionManager::type_url() {
        return None;
    }
    let mut manager = HttpConnectionManager::decode(packed.value.as_slice()).ok()?;
    let Some(RouteSpecifier::RouteConfig(routes)) = manager.route_specifier.take() else { return None };
    let patched = patching.route_configuration(routes.clone());
    if patched == routes {
        return None;
    }
    manager.route_specifier = Some(RouteSpecifier::RouteConfig(patched));
    Some(wkt::Any { type_url: packed.type_url.clone(), value: manager.encode_to_vec() })
}

#[cfg(test)]
mod tests;
