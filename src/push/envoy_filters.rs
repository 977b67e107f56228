//! EnvoyFilters: their patches, read once for each version of an object, and those that apply to a proxy, in Istio's order.
//!
//! Owns the selection (namespace, workload, proxy version, metadata, kind of proxy) and the order: priority, then the root
//! namespace, then age, then name. The result is a [`PatchSet`], a part of the view: proxies with the same patches share it, and
//! labels or versions that no patch distinguishes do not. Nothing is patched here.

mod patch;
mod set;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use self::patch::ReadFilter;
pub use self::{
    patch::{Patch, PatchValue},
    set::PatchSet,
};
use super::{ProxyView, context::PushInputs};
use crate::{
    model::{Config, Kind, MovedNodes, Node, NodeType},
    proto::networking::envoy_filter::PatchContext,
};

/// Names the Gateway that a workload is an instance of.
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";

/// EnvoyFilters by namespace.
#[derive(Debug, Default)]
pub struct EnvoyFilterIndex {
    root: Arc<str>,
    /// Whether selectors count for gateways of the Gateway API.
    selectors_of_gateways: bool,
    by_namespace: HashMap<Arc<str>, Vec<Arc<ReadFilter>>>,
    /// Sets with a holder, by key: equal selections are one set.
    sets: Mutex<HashMap<u128, Weak<PatchSet>>>,
}

impl EnvoyFilterIndex {
    /// Reads the filters; those that an earlier index has are taken from it.
    #[must_use]
    pub fn build_after(inputs: &PushInputs, before: Option<&Self>) -> Self {
        let mut known: HashMap<u64, Arc<ReadFilter>> = HashMap::new();
        for filter in before.iter().flat_map(|index| index.by_namespace.values().flatten()) {
            known.insert(filter.stamp, filter.clone());
        }
        let mut by_namespace: HashMap<Arc<str>, Vec<Arc<ReadFilter>>> = HashMap::new();
        for config in inputs.configs.list(Kind::EnvoyFilter) {
            let same = known.get(&config.stamp).filter(|f| f.key == config.key() && f.created == config.meta.creation);
            let Some(read) = same.cloned().or_else(|| ReadFilter::of(config).map(Arc::new)) else { continue };
            by_namespace.entry(config.meta.namespace.clone()).or_default().push(read);
        }
        Self {
            root: inputs.mesh.config.root_namespace.as_str().into(),
            selectors_of_gateways: inputs.features.enable_selector_based_k8s_gateway_policy,
            by_namespace,
            sets: Mutex::default(),
        }
    }

    /// The patches for a proxy. `view` has all labels of the workload still.
    #[must_use]
    pub fn of(&self, node: &Node, view: &ProxyView) -> Arc<PatchSet> {
        if self.by_namespace.is_empty() {
            return PatchSet::none();
        }
        let (root, own) = (&*self.root, &*view.namespace);
        let in_namespace = |namespace: &str| self.by_namespace.get(namespace).map_or(&[][..], Vec::as_slice);
        let of_root = if root.is_empty() { &[][..] } else { in_namespace(root) };
        let of_own = if root == own { &[][..] } else { in_namespace(own) };
        let mut filters: Vec<&Arc<ReadFilter>> =
            of_root.iter().chain(of_own).filter(|filter| self.applies(filter, view)).collect();
        filters.sort_by(|a, b| {
            let is_own = |filter: &ReadFilter| *filter.key.namespace != *root;
            (a.priority, is_own(a), a.created).cmp(&(b.priority, is_own(b), b.created)).then_with(|| {
                let text = |filter: &ReadFilter| format!("{}.{}", filter.key.name, filter.key.namespace);
                text(a).cmp(&text(b))
            })
        });
        let version = &*view.metadata.istio_version;
        let applies = |patch: &&Arc<Patch>| {
            is_of(patch.context, view.node_type) && patch.matches_proxy(version, &node.raw_metadata)
        };
        let patches: Vec<Arc<Patch>> = filters.iter().flat_map(|f| &f.patches).filter(applies).cloned().collect();
        let mut services = BTreeSet::new();
        filters.iter().for_each(|filter| services.extend(filter.services.iter().cloned()));
        self.interned(PatchSet::new(patches, services))
    }

    /// Adds the proxies that filters of these names (`(namespace, name)`) may select.
    pub(super) fn select(&self, names: &HashSet<&(Arc<str>, Arc<str>)>, nodes: &mut MovedNodes) {
        for filter in self.by_namespace.values().flatten() {
            let namespace = &filter.key.namespace;
            if names.contains(&(namespace.clone(), filter.key.name.clone())) {
                let namespace = (**namespace != *self.root).then_some(namespace);
                nodes.select(namespace, filter.targets.selector());
            }
        }
    }

    /// The patches of an EnvoyFilter that no resource can take, each with its place and the reason.
    #[must_use]
    pub fn faults_of(&self, config: &Config) -> &[String] {
        let of_namespace = self.by_namespace.get(&config.meta.namespace).into_iter().flatten();
        let mut same =
            of_namespace.filter(|filter| filter.stamp == config.stamp && filter.key.name == config.meta.name);
        same.next().map_or(&[], |filter| &filter.faults)
    }

    fn interned(&self, set: PatchSet) -> Arc<PatchSet> {
        if set.is_empty() {
            return PatchSet::none();
        }
        let mut sets = self.sets.lock();
        if let Some(known) = sets.get(&set.key()).and_then(Weak::upgrade) {
            return known;
        }
        let set = Arc::new(set);
        sets.retain(|_, held| held.strong_count() > 0);
        sets.insert(set.key(), Arc::downgrade(&set));
        set
    }

    fn applies(&self, filter: &ReadFilter, view: &ProxyView) -> bool {
        let Some(gateway) = view.labels.get(GATEWAY_NAME) else {
            return filter.targets.references.is_empty() && filter.targets.select(&view.labels);
        };
        if filter.targets.references.is_empty() {
            let is_waypoint = view.node_type == NodeType::Waypoint;
            return !is_waypoint && self.selectors_of_gateways && filter.targets.select(&view.labels);
        }
        filter.key.namespace == view.namespace && filter.targets.name_gateway(gateway, &view.namespace)
    }
}

/// Whether proxies of a kind have resources of this context.
fn is_of(context: PatchContext, node_type: NodeType) -> bool {
    match context {
        PatchContext::Any => true,
        PatchContext::SidecarInbound | PatchContext::SidecarOutbound => node_type == NodeType::Sidecar,
        PatchContext::Gateway => matches!(node_type, NodeType::Router | NodeType::Agentgateway),
        PatchContext::Waypoint => node_type == NodeType::Waypoint,
    }
}

#[cfg(test)]
mod tests;
