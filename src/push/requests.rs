//! The types of resources that the step from one context to the next can change for a view.
//!
//! Invariant: a type that is left out here does not change for the view, nor does a name that is left out. A type that is
//! named may turn out unchanged; its bytes are compared anyway. Istio sends more in places: here it is enough that no change
//! is missed. The rules repeat the inputs of generators, so a generator with a new input needs a line here; the random
//! worlds of `discovery::incremental` compare the outcome with a fresh process.

use std::{collections::HashSet, ops::BitOr};

use super::{
    ProxyView, SidecarScope,
    changes::{Change, EndpointChange},
    policies::PolicyIndex,
};
use crate::model::{Hostname, Kind, NodeType, Resolution};

/// A set of resource types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Types(u8);

impl Types {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// Clusters (CDS).
    pub const CDS: Self = Self(1);
    /// Load assignments (EDS).
    pub const EDS: Self = Self(1 << 1);
    /// Listeners (LDS).
    pub const LDS: Self = Self(1 << 2);
    /// Route configurations (RDS).
    pub const RDS: Self = Self(1 << 3);
    /// Certificates and roots (SDS).
    pub const SDS: Self = Self(1 << 4);
    /// Extension configs (ECDS).
    pub const ECDS: Self = Self(1 << 5);
    /// The table of DNS names.
    pub const NDS: Self = Self(1 << 6);
    /// Roots for Istio's agents.
    pub const PCDS: Self = Self(1 << 7);
    /// All of them.
    pub const ALL: Self = Self(u8::MAX);

    /// Whether all of `other` are in the set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The types without those.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// No type is in the set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The types that are in both.
    const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// All of `self` if `condition` holds.
    const fn when(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }
}

impl BitOr for Types {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

const SERVICE: Types = Types(Types::CDS.0 | Types::EDS.0 | Types::LDS.0 | Types::RDS.0 | Types::NDS.0);
const ROUTES: Types = Types(Types::LDS.0 | Types::RDS.0);
const ENDPOINTS: Types = Types(Types::CDS.0 | Types::EDS.0);

/// The resources that a change can affect for a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effects {
    /// The types.
    pub types: Types,
    /// Load assignments of other hosts than these stay as they are; `None` when any may change.
    pub hosts: Option<HashSet<Hostname>>,
}

/// The resources that a change can affect for a view.
#[must_use]
pub fn effects(change: &Change<'_>, view: &ProxyView) -> Effects {
    let has_name_table = view.node_type == NodeType::Sidecar && view.metadata.dns_capture;
    let possible = if has_name_table { Types::ALL } else { Types::ALL.without(Types::NDS) };
    let what = change.differences();
    if what.everything {
        return Effects { types: possible, hosts: None };
    }
    let mut effects = Effects { types: Types::NONE, hosts: Some(HashSet::new()) };
    if !what.is_empty() {
        effects.add_scope(change, view);
        effects.add_endpoints(change, view);
        effects.add_policies(change, view);
        effects.add_access(change, view);
        effects.add_others(change, view);
        if view.is_router() {
            effects.add_router(change, view);
        }
    }
    effects.types = effects.types.and(possible);
    effects
}

impl Effects {
    /// Types, in which any load assignment may differ.
    fn add(&mut self, types: Types) {
        self.types = self.types | types;
        if types.contains(Types::EDS) {
            self.hosts = None;
        }
    }

    fn add_hosts(&mut self, types: Types, hosts: impl IntoIterator<Item = Hostname>) {
        self.types = self.types | types;
        if let Some(known) = &mut self.hosts {
            known.extend(hosts);
        }
    }

    /// Differences inside the scope: services with their rules, routes, the Sidecar itself.
    fn add_scope(&mut self, change: &Change<'_>, view: &ProxyView) {
        let (_, _, scope) = change.scopes(view);
        if scope.sidecar {
            self.add(SERVICE);
        }
        if !scope.hosts.is_empty() {
            self.add_hosts(SERVICE, scope.hosts.iter().cloned());
        }
        if scope.routes && !view.is_router() {
            // Routes over HTTP alone are in no listener of a sidecar; listeners of other clients may hold them.
            let listeners = scope.stream_routes || !view.metadata.generator.is_empty();
            self.add(Types::RDS | Types::LDS.when(listeners));
        }
    }

    fn add_endpoints(&mut self, change: &Change<'_>, view: &ProxyView) {
        if change.differences().endpoints.is_empty() {
            return;
        }
        let (before, now, _) = change.scopes(view);
        for endpoints in &change.differences().endpoints {
            let (host, namespace) = (&endpoints.host, &endpoints.namespace);
            let sees = |scope: &SidecarScope| match view.is_router() {
                true => scope.services_by_host.contains_key(host),
                false => scope.has_service(host, namespace) || scope.lists(host, namespace),
            };
            if sees(&before) || sees(&now) {
                let ruled = [&before, &now].iter().any(|scope| scope.has_rule_of(host));
                let types = change.resolution(host, namespace).map(|r| of_endpoints(endpoints, r, ruled));
                self.add_hosts(types[0] | types[1], [host.clone()]);
            }
        }
    }

    /// Authorization policies of a workload are in its own listeners alone.
    fn add_access(&mut self, change: &Change<'_>, view: &ProxyView) {
        let inputs = &change.differences().inputs;
        let differ = || !change.before.policies.same_for(&change.now.policies, view);
        let keys = || change.now.policies.reads_keys(&inputs.keys, view);
        if (inputs.any(&PolicyIndex::KINDS) && differ()) || (!inputs.keys.is_empty() && keys()) {
            let filters = view.is_router() && change.now.features().filter_gateway_cluster_config;
            self.add(Types::LDS | ENDPOINTS.when(filters));
        }
    }

    /// The mode of mutual TLS: of the workload itself in its listeners, of services and endpoints in the resources that lead
    /// to them.
    fn add_policies(&mut self, change: &Change<'_>, view: &ProxyView) {
        let mut policies = change.differences().inputs.of_kind(Kind::PeerAuthentication).peekable();
        if policies.peek().is_none() {
            return;
        }
        let policy = |authn: &super::authn::AuthnPolicies| authn.policy(&view.namespace, &view.labels);
        self.add(Types::LDS.when(policy(&change.before.authn) != policy(&change.now.authn)));
        let (before, now, _) = change.scopes(view);
        let root = change.now.mesh().config.root_namespace.as_str();
        let serves = |namespace: &str| {
            let mut services = before.services.iter().chain(&now.services);
            view.is_router() || services.any(|s| *s.namespace == *namespace)
        };
        let concerned = policies.any(|(namespace, _)| **namespace == *root || serves(namespace));
        self.add((ENDPOINTS | Types::LDS.when(view.is_router())).when(concerned));
    }

    /// Objects that do not depend on the scope of a proxy.
    fn add_others(&mut self, change: &Change<'_>, view: &ProxyView) {
        let root = change.now.mesh().config.root_namespace.as_str();
        for kind in change.differences().inputs.kinds() {
            let mut names = change.differences().inputs.of_kind(kind);
            let own = |namespace: &str| view.is_router() || *namespace == *view.namespace || *namespace == *root;
            let types = of_kind(kind);
            self.add(types.when(!is_selective(kind) || names.any(|(namespace, _)| own(namespace))));
        }
        let told = || !change.before.telemetries.same_for(&change.now.telemetries, view);
        self.add(Types::LDS.when(change.differences().inputs.any(&[Kind::Telemetry]) && told()));
        self.add(Types::PCDS.when(change.differences().inputs.roots));
        // Listeners name the clusters of providers, whether the proxy sees these services or not.
        self.add(Types::LDS.when(change.moves_providers()));
    }

    fn add_router(&mut self, change: &Change<'_>, view: &ProxyView) {
        let what = change.differences();
        let filters = change.now.features().filter_gateway_cluster_config;
        if what.inputs.any(&[Kind::VirtualService]) {
            self.add(ROUTES | ENDPOINTS.when(filters));
        }
        if what.inputs.any(&[Kind::DestinationRule]) {
            self.add(SERVICE);
        }
        if what.inputs.any(&[Kind::Gateway]) {
            self.add(ROUTES | ENDPOINTS | Types::SDS);
        }
        // A route may lead to a service beside it that is not the one which the scope has for the host.
        let hosts = change.seen_hosts(&view.namespace);
        if !hosts.is_empty() {
            self.add_hosts(SERVICE, hosts);
        }
        self.add(ROUTES.when(what.pools) | Types::SDS.when(what.grants));
    }
}

/// Endpoints are in EDS, but where Envoy asks DNS they are in the cluster, and a headless service has listeners, host names
/// and an inferred mode for them. Clusters name service accounts, and where the client dials the address itself the mode
/// follows from the endpoints; a DestinationRule can say that it does.
fn of_endpoints(endpoints: &EndpointChange, resolution: Option<Resolution>, ruled: bool) -> Types {
    let clusters = endpoints.accounts || (endpoints.modes && ruled);
    match resolution {
        None => Types::NONE,
        Some(Resolution::ClientSideLB) => Types::EDS | Types::CDS.when(clusters),
        Some(Resolution::Passthrough) => ENDPOINTS | Types::LDS | Types::NDS,
        Some(_) => ENDPOINTS,
    }
}

/// Kinds that count in their own namespace, or from the root namespace everywhere.
const fn is_selective(kind: Kind) -> bool {
    matches!(kind, Kind::WasmPlugin | Kind::TrafficExtension)
}

/// Types that hold objects of a kind directly; their translations and their entries in the registry are compared.
const fn of_kind(kind: Kind) -> Types {
    match kind {
        // Envoy asks the servers of modules through clusters of their own.
        Kind::WasmPlugin | Kind::TrafficExtension => Types(Types::CDS.0 | Types::LDS.0 | Types::ECDS.0),
        Kind::Secret | Kind::ConfigMap => Types(Types::SDS.0 | Types::ECDS.0),
        _ => Types::NONE,
    }
}

#[cfg(test)]
mod tests;
