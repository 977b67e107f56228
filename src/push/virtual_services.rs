//! VirtualServices: short names resolved, delegates merged, indexed by gateway and visibility
//! (Istio's `virtualServiceIndex` and its VirtualService controller).
//!
//! Invariants: every VirtualService here has hosts; all its host and gateway names are full ones; none has a delegate left.
//! Equal stamps mean equal merged content: a change of a delegate changes the stamp of its roots.

mod delegates;
mod destinations;
mod resolve;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::{ProxyView, context::PushInputs, services::export_to_or_public};
use crate::model::{Config, Kind, Visibility};
use delegates::Delegates;

pub use destinations::destinations;

/// The gateway name that stands for all sidecars.
pub const MESH_GATEWAY: &str = "mesh";

const ROUTE_SEMANTICS: &str = "internal.istio.io/route-semantics";

/// VirtualServices by gateway name.
type ByGateway = HashMap<Arc<str>, Vec<Arc<Config>>>;

/// VirtualServices by gateway and visibility.
#[derive(Debug, Default)]
pub struct VirtualServiceIndex {
    /// All root VirtualServices after merging, oldest first.
    pub all: Vec<Arc<Config>>,
    public: ByGateway,
    private: HashMap<Arc<str>, ByGateway>,
    exported: HashMap<Arc<str>, ByGateway>,
    /// Those of `all` that differ from the written config only in that names are written out, by the address of the config
    /// as written, which is held so that the address stays its own.
    resolved: HashMap<usize, (Arc<Config>, Arc<Config>)>,
    /// Destination hosts of VirtualServices by gateway, kept only with `PILOT_FILTER_GATEWAY_CLUSTER_CONFIG`.
    destinations: HashMap<Arc<str>, BTreeSet<String>>,
}

impl VirtualServiceIndex {
    /// Builds the index.
    #[must_use]
    pub fn build(inputs: &PushInputs) -> Self {
        Self::build_after(inputs, None)
    }

    /// Builds the index with the still valid parts of an earlier one, which had the same mesh settings.
    #[must_use]
    pub(super) fn build_after(inputs: &PushInputs, previous: Option<&Self>) -> Self {
        let configs = inputs.configs.list(Kind::VirtualService);
        let default = export_to_or_public(&inputs.mesh.config.default_virtual_service_export_to);
        let delegates = Delegates::of(configs, &default, &inputs.mesh.domain);
        let mut index = Self::default();
        for config in configs {
            let address = Arc::as_ptr(config) as usize;
            let known = previous.and_then(|p| p.resolved.get(&address)).map(|(_, resolved)| resolved.clone());
            let Some(merged) = known.or_else(|| merged(config, &delegates, &inputs.mesh.domain)) else { continue };
            if !delegates_routes(config) {
                index.resolved.insert(address, (config.clone(), merged.clone()));
            }
            index.add(&merged, &default);
            if inputs.features.filter_gateway_cluster_config {
                index.add_destinations(&merged, inputs.features.scope_gateway_to_namespace);
            }
            index.all.push(merged);
        }
        index
    }

    fn add(&mut self, config: &Arc<Config>, default: &BTreeSet<Visibility>) {
        let Some(spec) = config.virtual_service() else { return };
        let own = &config.meta.namespace;
        let export_to = export_to(&spec.export_to, own, default);
        let gateways = gateway_names(&spec.gateways);
        if export_to.contains(&Visibility::Public) {
            insert(&mut self.public, &gateways, config);
            return;
        }
        if export_to.contains(&Visibility::None) {
            return;
        }
        for entry in &export_to {
            let Visibility::Namespace(namespace) = entry else { continue };
            let lists = if namespace == own { &mut self.private } else { &mut self.exported };
            insert(lists.entry(namespace.clone()).or_default(), &gateways, config);
        }
    }

    fn add_destinations(&mut self, config: &Config, by_source_namespace: bool) {
        let Some(spec) = config.virtual_service() else { return };
        for gateway in gateway_names(&spec.gateways).into_iter().filter(|g| **g != *MESH_GATEWAY) {
            let gateway_namespace = gateway.split_once('/').map_or(&*config.meta.namespace, |(n, _)| n);
            let source = if by_source_namespace { gateway_namespace } else { "" };
            let hosts = destinations(spec, source).into_keys();
            self.destinations.entry(gateway.clone()).or_default().extend(hosts.map(ToString::to_string));
        }
    }

    /// The VirtualServices bound to `gateway` (`mesh` or `namespace/name`) that the view's namespace may see: its private
    /// ones, those exported to it by name, then the public ones, each oldest first; among the public ones, routes of the
    /// Gateway API in the view's own namespace come first (Istio's `VirtualServicesForGateway`).
    #[must_use]
    pub fn for_gateway(&self, view: &ProxyView, gateway: &str) -> Vec<Arc<Config>> {
        self.for_namespace(&view.namespace, gateway)
    }

    /// As [`VirtualServiceIndex::for_gateway`], for proxies of a namespace.
    #[must_use]
    pub fn for_namespace(&self, namespace: &str, gateway: &str) -> Vec<Arc<Config>> {
        let [private, exported, public] = self.lists(namespace, gateway);
        let (own, others): (Vec<_>, Vec<_>) =
            public.iter().partition(|c| has_gateway_semantics(c) && *c.meta.namespace == *namespace);
        private.iter().chain(exported).chain(own).chain(others).cloned().collect()
    }

    /// VirtualServices that `namespace` may see at a gateway: private ones, those exported to it by name, public ones; each
    /// oldest first.
    pub(super) fn lists(&self, namespace: &str, gateway: &str) -> [&[Arc<Config>]; 3] {
        let list = |map| of_gateway(map, gateway);
        [list(self.private.get(namespace)), list(self.exported.get(namespace)), list(Some(&self.public))]
    }

    /// Hosts that VirtualServices of this gateway (`namespace/name`) route to; empty unless
    /// `PILOT_FILTER_GATEWAY_CLUSTER_CONFIG` is set.
    #[must_use]
    pub fn destinations_of_gateway(&self, gateway: &str) -> Option<&BTreeSet<String>> {
        self.destinations.get(gateway)
    }
}

/// Whether routes of the VirtualService are those of another one.
fn delegates_routes(config: &Config) -> bool {
    config.virtual_service().is_some_and(|spec| spec.http.iter().any(|route| route.delegate.is_some()))
}

/// The VirtualService as it is used: `None` for a delegate.
fn merged(config: &Arc<Config>, delegates: &Delegates, domain: &str) -> Option<Arc<Config>> {
    let spec = config.virtual_service()?;
    if spec.hosts.is_empty() {
        return None;
    }
    if has_gateway_semantics(config) {
        return Some(config.clone());
    }
    let resolved = resolve::short_names(config, domain);
    if has_ingress_semantics(config) || spec.http.iter().all(|r| r.delegate.is_none()) {
        return Some(resolved);
    }
    Some(delegates.merge_into(&resolved))
}

/// Namespaces that see a VirtualService, `.` written out as its own namespace.
fn export_to(entries: &[String], own: &Arc<str>, default: &BTreeSet<Visibility>) -> BTreeSet<Visibility> {
    let named = |v: Visibility| if v == Visibility::Private { Visibility::Namespace(own.clone()) } else { v };
    if entries.is_empty() {
        return default.iter().cloned().map(named).collect();
    }
    entries.iter().map(|e| named(Visibility::parse(e))).collect()
}

fn gateway_names(gateways: &[String]) -> Vec<Arc<str>> {
    if gateways.is_empty() {
        return vec![MESH_GATEWAY.into()];
    }
    gateways.iter().map(|g| g.as_str().into()).collect()
}

fn of_gateway<'a>(map: Option<&'a ByGateway>, gateway: &str) -> &'a [Arc<Config>] {
    map.and_then(|m| m.get(gateway)).map_or(&[], Vec::as_slice)
}

fn insert(map: &mut ByGateway, gateways: &[Arc<str>], config: &Arc<Config>) {
    for gateway in gateways {
        map.entry(gateway.clone()).or_default().push(config.clone());
    }
}

/// Whether the VirtualService was made from Gateway API routes (Istio's `UseGatewaySemantics`).
#[must_use]
pub fn has_gateway_semantics(config: &Config) -> bool {
    config.meta.annotations.get(ROUTE_SEMANTICS).is_some_and(|v| v == "gateway")
}

/// Whether the VirtualService was made from an Ingress (Istio's `UseIngressSemantics`).
#[must_use]
pub fn has_ingress_semantics(config: &Config) -> bool {
    config.meta.annotations.get(ROUTE_SEMANTICS).is_some_and(|v| v == "ingress")
}

#[cfg(test)]
mod tests;
