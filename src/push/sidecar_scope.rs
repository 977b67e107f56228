//! The sidecar scope: which services, routes and rules a proxy sees (Istio's `SidecarScope`).

use std::{collections::HashMap, sync::Arc};

use super::{
    MergedDestinationRule, ProxyView,
    context::{PushContext, PushInputs},
};
use crate::{
    model::{Config, Hostname, Service},
    proto::networking,
};

/// One egress listener of a scope.
#[derive(Debug, Clone)]
pub struct EgressListener {
    /// As written; `None` for the catch-all listener of a default scope.
    pub spec: Option<networking::IstioEgressListener>,
    /// Services that it imports, in push order.
    pub services: Vec<Arc<Service>>,
    /// VirtualServices (bound to `mesh`) that it imports, oldest first.
    pub virtual_services: Vec<Arc<Config>>,
}

/// What a proxy sees.
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
    /// Policy for traffic to unknown destinations, after the mesh's default.
    pub outbound_traffic_policy: networking::OutboundTrafficPolicy,
}

/// Sidecars, indexed, with computed scopes memoised.
#[derive(Debug, Default)]
pub struct SidecarIndex {}

impl SidecarIndex {
    /// Builds the index.
    #[must_use]
    pub fn build(_inputs: &PushInputs) -> Self {
        Self::default()
    }

    /// The scope of a view.
    #[must_use]
    pub fn scope_of(&self, context: &PushContext, view: &ProxyView) -> Arc<SidecarScope> {
        let services = context.services.visible_to(&context.inputs, &view.namespace);
        Arc::new(SidecarScope {
            name: "default-sidecar".into(),
            namespace: view.namespace.clone(),
            sidecar: None,
            egress: vec![EgressListener { spec: None, services: services.clone(), virtual_services: Vec::new() }],
            services_by_host: services.iter().map(|s| (s.hostname.clone(), s.clone())).collect(),
            services,
            destination_rules: HashMap::new(),
            outbound_traffic_policy: networking::OutboundTrafficPolicy::default(),
        })
    }
}
