//! The push context: one immutable picture of all configuration, with the indexes that generation asks.

use std::{collections::BTreeSet, sync::Arc};

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
pub use crate::model::PushInputs;
use crate::{
    model::{EndpointIndex, Features, Kind, Mesh},
    translate::Translation,
};

/// One immutable picture of all configuration.
#[derive(Debug)]
pub struct PushContext {
    /// What it was built from; its configs are those of the user and those that were translated from other APIs.
    pub inputs: PushInputs,
    /// What Gateway API and Ingress objects became.
    pub translation: Arc<Translation>,
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
            network_gateways,
            read_keys,
        }
    }

    /// Builds the next context; parts whose inputs are the same `Arc`s as before are shared with `self`. Endpoints and
    /// workloads are no input of any part, so a change of these builds nothing.
    #[must_use]
    pub fn next(&self, inputs: PushInputs) -> Self {
        let translation = Arc::new(self.translation.next(inputs));
        let inputs = translation.effective();
        let changes = Changes::between(&self.inputs, &inputs);
        if changes.settings {
            return Self::of(translation);
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
        let of_networks = changes.services || changes.any(&[Kind::KubernetesGateway]);
        let network_gateways = keep_unless(of_networks, &self.network_gateways, || NetworkGateways::build(&inputs));
        let of_keys = changes.services || changes.any(&ReadKeys::KINDS);
        let read_keys = keep_unless(of_keys, &self.read_keys, || ReadKeys::build(&inputs));
        Self {
            inputs,
            translation,
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

fn keep_unless<T>(changed: bool, part: &Arc<T>, build: impl FnOnce() -> T) -> Arc<T> {
    if changed { Arc::new(build()) } else { part.clone() }
}

/// Which inputs of a context are other ones than those of the context before.
#[derive(Debug)]
struct Changes {
    /// Mesh settings or feature flags: everything depends on these.
    settings: bool,
    services: bool,
    kinds: BTreeSet<Kind>,
}

impl Changes {
    fn between(old: &PushInputs, new: &PushInputs) -> Self {
        let same_mesh = Arc::ptr_eq(&old.mesh, &new.mesh) || old.mesh == new.mesh;
        let same_features = Arc::ptr_eq(&old.features, &new.features) || old.features == new.features;
        let kinds = old.configs.by_kind.keys().chain(new.configs.by_kind.keys());
        Self {
            settings: !same_mesh || !same_features,
            services: !same_list(&old.registry.services, &new.registry.services, |a, b| a.stamp == b.stamp),
            kinds: kinds.copied().filter(|kind| !same_configs(old, new, *kind)).collect(),
        }
    }

    fn any(&self, kinds: &[Kind]) -> bool {
        kinds.iter().any(|kind| self.kinds.contains(kind))
    }
}

fn same_configs(old: &PushInputs, new: &PushInputs, kind: Kind) -> bool {
    same_list(old.configs.list(kind), new.configs.list(kind), |a, b| a.stamp == b.stamp)
}

fn same_list<T>(old: &[Arc<T>], new: &[Arc<T>], same_content: impl Fn(&T, &T) -> bool) -> bool {
    std::ptr::eq(old, new)
        || (old.len() == new.len() && old.iter().zip(new).all(|(a, b)| Arc::ptr_eq(a, b) || same_content(a, b)))
}

#[cfg(test)]
mod tests;
