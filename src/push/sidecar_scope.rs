//! The sidecar scope: the services, routes and rules that a proxy sees (Istio's `SidecarScope`).
//!
//! Invariants: a scope holds one service per host; its contents depend on the context, the namespace and the chosen Sidecar
//! only, never on the proxy. Scopes are computed on first demand and shared by all proxies that have the same.

mod build;
mod change;
mod hosts;
mod index;
mod listener;
mod services;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{MergedDestinationRule, ProxyView, destination_rules};
use crate::{
    model::{Config, Hostname, Resolution, Service},
    proto::networking,
};

pub(super) use change::{ScopeChange, ScopedRules};
pub(super) use index::ScopeSource;
pub use index::SidecarIndex;

/// Aliases of aliases that are followed.
const MOST_ALIASES: usize = 16;

/// One egress listener of a scope.
#[derive(Debug, Clone)]
pub struct EgressListener {
    /// As written; `None` for the catch-all listener of a default scope.
    pub spec: Option<networking::IstioEgressListener>,
    /// Imported services in push order: those exported to the namespace by name first. Empty for routers.
    pub services: Vec<Arc<Service>>,
    /// VirtualServices (bound to `mesh`) that it imports: private ones, those exported to the namespace by name, public
    /// ones, each oldest first.
    pub virtual_services: Vec<Arc<Config>>,
    /// For each imported service that has one, the VirtualService with the most specific host, as `(namespace, name)`.
    pub most_specific_virtual_services: HashMap<Hostname, (Arc<str>, Arc<str>)>,
}

/// The configuration that a proxy sees.
#[derive(Debug)]
pub struct SidecarScope {
    /// Name of the Sidecar, or of the default scope.
    pub name: Arc<str>,
    /// Namespace that the scope is for.
    pub namespace: Arc<str>,
    /// The Sidecar object; `None` for the default scope.
    pub sidecar: Option<Arc<Config>>,
    /// Egress listeners in order; the default scope has one without `spec`.
    pub egress: Vec<EgressListener>,
    /// All imported services, one per host, in push order.
    pub services: Vec<Arc<Service>>,
    /// The imported service of a host.
    pub services_by_host: HashMap<Hostname, Arc<Service>>,
    /// The DestinationRule of each imported host as this namespace sees it, without rules that have a workload selector.
    pub destination_rules: HashMap<Hostname, Arc<MergedDestinationRule>>,
    /// All DestinationRules of the hosts that have one with a workload selector; see [`SidecarScope::destination_rule`].
    pub selected_destination_rules: HashMap<Hostname, Vec<Arc<MergedDestinationRule>>>,
    /// Policy for traffic to unknown destinations, after the mesh's default.
    pub outbound_traffic_policy: networking::OutboundTrafficPolicy,
    /// Hash of everything above: equal stamps mean equal scopes.
    pub stamp: u128,
    /// Services of listeners that are not the ones which the scope has for their hosts: `(host, namespace)`.
    others: HashSet<(Hostname, Arc<str>)>,
}

impl SidecarScope {
    /// The DestinationRule for outbound traffic of a workload to an imported host: the one whose workload selector matches,
    /// else the one without.
    #[must_use]
    pub fn destination_rule(&self, view: &ProxyView, host: &str) -> Option<&Arc<MergedDestinationRule>> {
        match self.selected_destination_rules.get(host) {
            Some(rules) => destination_rules::select(rules, &self.namespace, &view.labels),
            None => self.destination_rules.get(host),
        }
    }

    /// The Sidecar's content.
    #[must_use]
    pub fn spec(&self) -> Option<&networking::Sidecar> {
        self.sidecar.as_ref().and_then(|config| config.sidecar())
    }

    /// Ingress listeners as written; empty means that inbound listeners follow the workload's services.
    #[must_use]
    pub fn ingress(&self) -> &[networking::IstioIngressListener] {
        self.spec().map_or(&[], |spec| &spec.ingress)
    }

    /// Connection pool for inbound traffic at a port: the ingress listener's, else the Sidecar's.
    #[must_use]
    pub fn inbound_connection_pool(&self, port: u32) -> Option<&networking::ConnectionPoolSettings> {
        self.ingress()
            .iter()
            .filter(|listener| listener.port.as_ref().is_some_and(|p| p.number == port))
            .find_map(|listener| listener.connection_pool.as_ref())
            .or_else(|| self.spec().and_then(|spec| spec.inbound_connection_pool.as_ref()))
    }

    /// The egress listener that a route configuration belongs to: the one with this port, for port 0 the one bound to this
    /// socket, else the first that has no port (Istio's `GetEgressListenerForRDS`).
    #[must_use]
    pub fn egress_for_route(&self, port: u32, bind: &str) -> Option<&EgressListener> {
        self.egress.iter().find(|listener| {
            let Some((spec, wanted)) = listener.spec.as_ref().and_then(|s| Some((s, s.port.as_ref()?))) else {
                return true;
            };
            wanted.number == port && (port != 0 || spec.bind == bind)
        })
    }

    /// The DNS name that an ExternalName service stands for, where that is no service of the scope; `None` for a circle.
    #[must_use]
    pub fn outside_name<'a>(&'a self, alias: &'a Service) -> Option<&'a str> {
        let mut of = alias;
        for _ in 0..MOST_ALIASES {
            if of.resolution != Resolution::Alias {
                return None;
            }
            match self.services_by_host.get(of.external_name.as_str()) {
                Some(next) => of = next,
                None => return Some(&of.external_name),
            }
        }
        None
    }

    /// Whether the scope holds this service.
    #[must_use]
    pub fn has_service(&self, host: &str, namespace: &str) -> bool {
        self.services_by_host.get(host).is_some_and(|s| *s.namespace == *namespace)
    }

    /// Whether some listener of the scope holds this service, though the scope has another one for the host.
    #[must_use]
    pub fn lists(&self, host: &Hostname, namespace: &Arc<str>) -> bool {
        !self.others.is_empty() && self.others.contains(&(host.clone(), namespace.clone()))
    }

    /// Whether some DestinationRule counts for an imported host.
    #[must_use]
    pub fn has_rule_of(&self, host: &str) -> bool {
        self.destination_rules.contains_key(host) || self.selected_destination_rules.contains_key(host)
    }
}

#[cfg(test)]
mod tests;
