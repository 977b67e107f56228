//! The push context: one immutable picture of all configuration, with the indexes that generation asks.

use std::sync::Arc;

use super::{
    ProxyView,
    authn::AuthnPolicies,
    destination_rules::DestinationRuleIndex,
    gateways::GatewayIndex,
    narrowing::ReadKeys,
    network_gateways::NetworkGateways,
    services::ServiceIndex,
    sidecar_scope::{SidecarIndex, SidecarScope},
    virtual_services::VirtualServiceIndex,
};
use crate::model::{ConfigSnapshot, EndpointIndex, Features, Mesh, RegistrySnapshot};

/// What a context is built from.
#[derive(Debug, Clone, Default)]
pub struct PushInputs {
    /// Mesh settings.
    pub mesh: Arc<Mesh>,
    /// Feature flags.
    pub features: Arc<Features>,
    /// Effective configs.
    pub configs: ConfigSnapshot,
    /// Services, endpoints, workloads.
    pub registry: RegistrySnapshot,
}

/// One immutable picture of all configuration.
#[derive(Debug)]
pub struct PushContext {
    /// What it was built from.
    pub inputs: PushInputs,
    /// Services by host and visibility.
    pub services: Arc<ServiceIndex>,
    /// VirtualServices, delegates merged, names resolved.
    pub virtual_services: Arc<VirtualServiceIndex>,
    /// DestinationRules, merged.
    pub destination_rules: Arc<DestinationRuleIndex>,
    /// Gateways.
    pub gateways: Arc<GatewayIndex>,
    /// Sidecars and the memo of computed scopes.
    pub sidecars: Arc<SidecarIndex>,
    /// PeerAuthentications.
    pub authn: Arc<AuthnPolicies>,
    /// Gateways between networks.
    pub network_gateways: Arc<NetworkGateways>,
    /// What the configuration reads of a proxy.
    pub read_keys: Arc<ReadKeys>,
}

impl PushContext {
    /// Builds everything.
    #[must_use]
    pub fn build(inputs: PushInputs) -> Self {
        let services = Arc::new(ServiceIndex::build(&inputs));
        let virtual_services = Arc::new(VirtualServiceIndex::build(&inputs));
        let destination_rules = Arc::new(DestinationRuleIndex::build(&inputs));
        let gateways = Arc::new(GatewayIndex::build(&inputs));
        let sidecars = Arc::new(SidecarIndex::build(&inputs));
        let authn = Arc::new(AuthnPolicies::build(&inputs));
        let network_gateways = Arc::new(NetworkGateways::build(&inputs));
        let read_keys = Arc::new(ReadKeys::build(&inputs));
        Self {
            inputs,
            services,
            virtual_services,
            destination_rules,
            gateways,
            sidecars,
            authn,
            network_gateways,
            read_keys,
        }
    }

    /// Builds the next context; parts whose inputs are the same `Arc`s as before are shared with `self`.
    #[must_use]
    pub fn next(&self, inputs: PushInputs) -> Self {
        Self::build(inputs)
    }

    /// Mesh settings.
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        &self.inputs.mesh
    }

    /// Feature flags.
    #[must_use]
    pub fn features(&self) -> &Features {
        &self.inputs.features
    }

    /// Endpoints by service.
    #[must_use]
    pub fn endpoints(&self) -> &EndpointIndex {
        &self.inputs.registry.endpoints
    }

    /// What the proxy with this view may see, and how it gets there (memoised by the Sidecar that selects it).
    #[must_use]
    pub fn scope(&self, view: &ProxyView) -> Arc<SidecarScope> {
        self.sidecars.scope_of(self, view)
    }
}
