//! The push context: one immutable snapshot of all configuration, with the indexes that generation reads.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{
    ProxyView,
    authn::AuthnPolicies,
    changes::{Changes, InputChanges},
    destination_rules::DestinationRuleIndex,
    envoy_filters::EnvoyFilterIndex,
    extensions::ExtensionIndex,
    gateways::{GatewayIndex, MergedGateway},
    network_gateways::NetworkGateways,
    policies::PolicyIndex,
    read_keys::ReadKeys,
    services::ServiceIndex,
    sidecar_scope::{SidecarIndex, SidecarScope},
    telemetries::TelemetryIndex,
    virtual_services::VirtualServiceIndex,
};
pub use crate::model::PushInputs;
use crate::{
    model::{EndpointIndex, Features, Kind, Mesh},
    translate::Translation,
};

/// One immutable snapshot of all configuration, indexed.
#[derive(Debug)]
pub struct PushContext {
    /// The inputs that it was built from; its configs are those of the user and those translated from other APIs.
    pub inputs: PushInputs,
    /// The results of translating Gateway API and Ingress objects.
    pub translation: Arc<Translation>,
    /// Services by host and visibility.
    pub services: Arc<ServiceIndex>,
    /// VirtualServices, delegates merged, names resolved.
    pub virtual_services: Arc<VirtualServiceIndex>,
    /// DestinationRules, merged.
    pub destination_rules: Arc<DestinationRuleIndex>,
    /// Gateways, and the memo of merged ones.
    pub gateways: Arc<GatewayIndex>,
    /// Sidecars and the memo of computed scopes.
    pub sidecars: Arc<SidecarIndex>,
    /// PeerAuthentications by level.
    pub authn: Arc<AuthnPolicies>,
    /// AuthorizationPolicies and RequestAuthentications by namespace.
    pub policies: Arc<PolicyIndex>,
    /// Telemetries by namespace.
    pub telemetries: Arc<TelemetryIndex>,
    /// EnvoyFilters by namespace.
    pub envoy_filters: Arc<EnvoyFilterIndex>,
    /// TrafficExtensions and WasmPlugins by namespace.
    pub extensions: Arc<ExtensionIndex>,
    /// Gateways between networks.
    pub network_gateways: Arc<NetworkGateways>,
    /// The labels and fields of a proxy that the configuration reads.
    pub read_keys: Arc<ReadKeys>,
    /// Number of the context, unique in the process.
    id: u64,
    /// The difference from the context that it was built after, and the number of that one.
    since: Option<(u64, Arc<Changes>)>,
}

static BUILT: AtomicU64 = AtomicU64::new(0);

fn next_id() -> u64 {
    BUILT.fetch_add(1, Ordering::Relaxed)
}

impl PushContext {
    /// Builds all parts from the inputs.
    #[must_use]
    pub fn build(inputs: PushInputs) -> Self {
        let translation = Translation::build(inputs);
        Self::of(Arc::new(translation))
    }

    fn of(translation: Arc<Translation>) -> Self {
        let inputs = translation.effective();
        let services = Arc::new(ServiceIndex::build(&inputs));
        let virtual_services = Arc::new(VirtualServiceIndex::build(&inputs));
        let destination_rules = Arc::new(DestinationRuleIndex::build(&inputs));
        let gateways = Arc::new(GatewayIndex::build(&inputs));
        let sidecars = Arc::new(SidecarIndex::build(&inputs));
        let authn = Arc::new(AuthnPolicies::build(&inputs));
        let policies = Arc::new(PolicyIndex::build(&inputs));
        let telemetries = Arc::new(TelemetryIndex::build(&inputs));
        let envoy_filters = Arc::new(EnvoyFilterIndex::build_after(&inputs, None));
        let extensions = Arc::new(ExtensionIndex::build(&inputs));
        let network_gateways = Arc::new(NetworkGateways::build(&inputs));
        let read_keys = Arc::new(ReadKeys::build(&inputs));
        Self {
            inputs,
            translation,
            services,
            virtual_services,
            destination_rules,
            gateways,
            sidecars,
            authn,
            policies,
            telemetries,
            envoy_filters,
            extensions,
            network_gateways,
            read_keys,
            id: next_id(),
            since: None,
        }
    }

    /// Builds the next context; parts whose inputs are the same `Arc`s as before are shared with `self`. Endpoints and
    /// workloads are no input of any part, so a change of these builds nothing.
    #[must_use]
    pub fn next(&self, inputs: PushInputs) -> Self {
        let translation = Arc::new(self.translation.next(inputs));
        let inputs = translation.effective();
        let changes = InputChanges::between(&self.inputs, &inputs);
        if changes.settings {
            return Self::of(translation).after(self, changes);
        }
        let services = keep_unless(changes.services, &self.services, || ServiceIndex::build(&inputs));
        let virtual_services = keep_unless(changes.any(&[Kind::VirtualService]), &self.virtual_services, || {
            VirtualServiceIndex::build_after(&inputs, Some(&self.virtual_services))
        });
        let destination_rules = keep_unless(changes.any(&[Kind::DestinationRule]), &self.destination_rules, || {
            DestinationRuleIndex::build(&inputs)
        });
        let gateways = keep_unless(changes.any(&[Kind::Gateway]), &self.gateways, || GatewayIndex::build(&inputs));
        let of_scopes = changes.services || changes.any(&SidecarIndex::KINDS);
        let sidecars = keep_unless(of_scopes, &self.sidecars, || SidecarIndex::build(&inputs));
        let authn =
            keep_unless(changes.any(&[Kind::PeerAuthentication]), &self.authn, || AuthnPolicies::build(&inputs));
        let policies = keep_unless(changes.any(&PolicyIndex::KINDS), &self.policies, || PolicyIndex::build(&inputs));
        let telemetries =
            keep_unless(changes.any(&[Kind::Telemetry]), &self.telemetries, || TelemetryIndex::build(&inputs));
        let envoy_filters = keep_unless(changes.any(&[Kind::EnvoyFilter]), &self.envoy_filters, || {
            EnvoyFilterIndex::build_after(&inputs, Some(&self.envoy_filters))
        });
        let extensions =
            keep_unless(changes.any(&ExtensionIndex::KINDS), &self.extensions, || ExtensionIndex::build(&inputs));
        let of_networks = changes.services || changes.names || changes.any(&[Kind::KubernetesGateway]);
        let network_gateways = keep_unless(of_networks, &self.network_gateways, || NetworkGateways::build(&inputs));
        let of_keys = changes.services || changes.any(&ReadKeys::KINDS);
        let read_keys = keep_unless(of_keys, &self.read_keys, || ReadKeys::build(&inputs));
        let next = Self {
            inputs,
            translation,
            services,
            virtual_services,
            destination_rules,
            gateways,
            sidecars,
            authn,
            policies,
            telemetries,
            envoy_filters,
            extensions,
            network_gateways,
            read_keys,
            id: next_id(),
            since: None,
        };
        next.after(self, changes)
    }

    fn after(mut self, before: &Self, inputs: InputChanges) -> Self {
        self.since = Some((before.id, Arc::new(Changes::between(before, &self, inputs))));
        self
    }

    /// The difference from another context: known for the one that this one was built after, compared now for any other.
    #[must_use]
    pub fn changes_since(&self, before: &Self) -> Arc<Changes> {
        match &self.since {
            Some((id, changes)) if *id == before.id => changes.clone(),
            _ => Arc::new(Changes::between(before, self, InputChanges::between(&before.inputs, &self.inputs))),
        }
    }

    /// Mesh settings, as merged from all sources.
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        &self.inputs.mesh
    }

    /// Feature flags, as read at the start.
    #[must_use]
    pub fn features(&self) -> &Features {
        &self.inputs.features
    }

    /// Endpoints by service.
    #[must_use]
    pub fn endpoints(&self) -> &EndpointIndex {
        &self.inputs.registry.endpoints
    }

    /// The scope of the proxy with this view (memoised by the Sidecar that selects it).
    #[must_use]
    pub fn scope(&self, view: &ProxyView) -> Arc<SidecarScope> {
        self.sidecars.scope_of(view, |source| SidecarScope::build(self, &view.namespace, source))
    }

    /// The Gateways that select the view, merged (memoised); `None` when none does.
    #[must_use]
    pub fn merged_gateway(&self, view: &ProxyView) -> Option<Arc<MergedGateway>> {
        self.gateways.merged(self.features(), view)
    }
}

fn keep_unless<T>(changed: bool, part: &Arc<T>, build: impl FnOnce() -> T) -> Arc<T> {
    if changed { Arc::new(build()) } else { part.clone() }
}

#[cfg(test)]
mod tests;
