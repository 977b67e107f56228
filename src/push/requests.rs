//! Who needs what: the types of resources that a push request can change for a view
//! (Istio's `DefaultProxyNeedsPush` and the `…NeedsPush` of its generators).
//!
//! Invariant: a type that is left out here does not change for the view. A type that is named may turn out unchanged; its
//! bytes are compared anyway. Istio sends more in places: here it is enough that nothing is missed.

use std::{ops::BitOr, sync::Arc};

use super::{ProxyView, PushContext, SidecarScope};
use crate::model::{Kind, NodeType, PushKey, PushKind, PushRequest, Resolution, kind::KindClass};

/// A set of resource types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Types(u8);

impl Types {
    /// None.
    pub const NONE: Self = Self(0);
    /// Clusters.
    pub const CDS: Self = Self(1);
    /// Endpoints.
    pub const EDS: Self = Self(1 << 1);
    /// Listeners.
    pub const LDS: Self = Self(1 << 2);
    /// Routes.
    pub const RDS: Self = Self(1 << 3);
    /// Secrets.
    pub const SDS: Self = Self(1 << 4);
    /// Extension configs.
    pub const ECDS: Self = Self(1 << 5);
    /// The table of DNS names.
    pub const NDS: Self = Self(1 << 6);
    /// All of them.
    pub const ALL: Self = Self((1 << 7) - 1);

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
const IMPORTED: Types = Types(Types::CDS.0 | Types::EDS.0 | Types::NDS.0);

/// The types that a request can change for a view, given the context after it and the one before.
#[must_use]
pub fn affects(
    request: &PushRequest,
    context: &PushContext,
    previous: Option<&PushContext>,
    view: &ProxyView,
) -> Types {
    let has_name_table = view.node_type == NodeType::Sidecar && view.metadata.dns_capture;
    let possible = if has_name_table { Types::ALL } else { Types::ALL.without(Types::NDS) };
    let Some(previous) = previous.filter(|_| !request.forced) else { return possible };
    if request.keys.is_empty() {
        return Types::NONE;
    }
    let change = Change { context, previous, view, now: context.scope(view), before: previous.scope(view) };
    let mut types = Types::NONE;
    for key in &request.keys {
        types = types | if view.is_router() { change.for_router(key) } else { change.for_sidecar(key) };
        if types.contains(possible) {
            break;
        }
    }
    Types(types.0 & possible.0)
}

/// Two contexts and what the view sees of them.
struct Change<'a> {
    context: &'a PushContext,
    previous: &'a PushContext,
    view: &'a ProxyView,
    now: Arc<SidecarScope>,
    before: Arc<SidecarScope>,
}

impl Change<'_> {
    fn for_router(&self, key: &PushKey) -> Types {
        let kind = match key.kind {
            PushKind::Endpoints => return self.of_endpoints(key).when(self.sees_host(key)),
            PushKind::DnsName => return Types::NDS,
            PushKind::Object(_) => return Types::NONE,
            PushKind::Config(kind) => kind,
        };
        let filters = self.context.features().filter_gateway_cluster_config;
        match kind {
            Kind::Sidecar => Types::NONE,
            Kind::ServiceEntry => SERVICE.when(self.sees_host(key) || self.is_own(key) || self.sees_alias(key)),
            Kind::VirtualService => ROUTES | IMPORTED.when(filters),
            Kind::DestinationRule => SERVICE,
            Kind::Gateway => ROUTES | Types::CDS | Types::EDS | Types::SDS,
            Kind::PeerAuthentication => Types::CDS | Types::EDS | Types::LDS,
            kind => of_other_kind(kind),
        }
    }

    fn for_sidecar(&self, key: &PushKey) -> Types {
        let kind = match key.kind {
            PushKind::Endpoints => {
                let seen = |scope: &SidecarScope| scope.has_service(&key.name, &key.namespace);
                return self.of_endpoints(key).when(seen(&self.now) || seen(&self.before));
            }
            PushKind::DnsName => return Types::NDS,
            PushKind::Object(_) => return Types::NONE,
            PushKind::Config(kind) => kind,
        };
        let (now, before) = (&*self.now, &*self.before);
        let in_either = |has: &dyn Fn(&SidecarScope) -> bool| has(now) || has(before);
        match kind {
            Kind::Gateway => Types::NONE,
            Kind::ServiceEntry => {
                let seen = in_either(&|scope| scope.has_service(&key.name, &key.namespace));
                SERVICE.when(seen || self.is_own(key) || self.sees_alias(key))
            }
            Kind::VirtualService => {
                let routes = in_either(&|scope| self.has_route(scope, key));
                let imports = routes && self.imports_changed();
                let listeners = routes && (imports || self.stream_routes_changed());
                Types::RDS.when(routes) | Types::LDS.when(listeners) | IMPORTED.when(imports)
            }
            Kind::DestinationRule => {
                SERVICE.when(in_either(&|scope| scope.has_destination_rule(&key.namespace, &key.name)))
            }
            Kind::Sidecar => {
                let applies = in_either(&|scope| {
                    scope.sidecar.as_ref().is_some_and(|s| s.meta.name == key.name && s.meta.namespace == key.namespace)
                });
                (ROUTES | Types::CDS).when(applies) | IMPORTED.when(applies && self.imports_changed())
            }
            Kind::PeerAuthentication => {
                let own = self.is_own_or_root(key);
                let of_service = own || in_either(&|scope| scope.services.iter().any(|s| s.namespace == key.namespace));
                Types::LDS.when(own) | (Types::CDS | Types::EDS).when(of_service)
            }
            Kind::EnvoyFilter
            | Kind::AuthorizationPolicy
            | Kind::RequestAuthentication
            | Kind::Telemetry
            | Kind::WasmPlugin
            | Kind::TrafficExtension => of_other_kind(kind).when(self.is_own_or_root(key)),
            kind => of_other_kind(kind),
        }
    }

    /// Endpoints are in EDS, but where Envoy asks DNS they are in the cluster, and a headless service has listeners, host
    /// names and an inferred mode for them.
    fn of_endpoints(&self, key: &PushKey) -> Types {
        let service = self.now.services_by_host.get(&key.name).or_else(|| self.before.services_by_host.get(&key.name));
        match service.map(|s| s.resolution) {
            Some(Resolution::ClientSideLB) => Types::EDS,
            Some(Resolution::Passthrough) => Types::EDS | Types::CDS | Types::LDS | Types::NDS,
            _ => Types::EDS | Types::CDS,
        }
    }

    fn sees_host(&self, key: &PushKey) -> bool {
        self.now.services_by_host.contains_key(&key.name) || self.before.services_by_host.contains_key(&key.name)
    }

    /// The key is a service that the proxy itself serves.
    fn is_own(&self, key: &PushKey) -> bool {
        self.view.targets.iter().any(|t| t.service.hostname == key.name && t.service.namespace == key.namespace)
    }

    /// The key is another name of a service that the proxy sees.
    fn sees_alias(&self, key: &PushKey) -> bool {
        let is_alias = |context: &PushContext| {
            context.services.get(&key.name, &key.namespace).is_some_and(|s| s.resolution == Resolution::Alias)
        };
        (is_alias(self.context) || is_alias(self.previous))
            && [&self.now, &self.before].into_iter().flat_map(|scope| &scope.services).any(|service| {
                service.aliases.iter().any(|(host, namespace)| *host == key.name && *namespace == key.namespace)
            })
    }

    fn has_route(&self, scope: &SidecarScope, key: &PushKey) -> bool {
        let roots = |context: &PushContext| context.virtual_services.roots_of(&key.namespace, &key.name).to_vec();
        scope.has_virtual_service(&key.namespace, &key.name)
            || roots(self.context)
                .iter()
                .chain(&roots(self.previous))
                .any(|(ns, name)| scope.has_virtual_service(ns, name))
    }

    fn is_own_or_root(&self, key: &PushKey) -> bool {
        key.namespace == self.view.namespace || *key.namespace == *self.context.mesh().config.root_namespace
    }

    /// VirtualServices with TCP or TLS routes differ. Those with HTTP routes alone are in no listener of a sidecar; what other
    /// clients get instead of listeners may hold them.
    fn stream_routes_changed(&self) -> bool {
        fn stamps(scope: &SidecarScope) -> impl Iterator<Item = u64> {
            let all = scope.egress.iter().flat_map(|listener| &listener.virtual_services);
            let streams = all.filter(|c| c.virtual_service().is_some_and(|v| !v.tls.is_empty() || !v.tcp.is_empty()));
            streams.map(|config| config.stamp)
        }
        !self.view.metadata.generator.is_empty() || !stamps(&self.now).eq(stamps(&self.before))
    }

    /// The scopes hold other services.
    fn imports_changed(&self) -> bool {
        let (now, before) = (&self.now.services, &self.before.services);
        now.len() != before.len() || now.iter().zip(before).any(|(a, b)| a.stamp != b.stamp)
    }
}

/// Kinds that do not depend on what a proxy sees.
fn of_other_kind(kind: Kind) -> Types {
    match kind {
        Kind::EnvoyFilter => SERVICE.without(Types::NDS) | Types::ECDS,
        Kind::AuthorizationPolicy | Kind::RequestAuthentication | Kind::Telemetry => Types::LDS,
        Kind::WasmPlugin | Kind::TrafficExtension => Types::LDS | Types::ECDS,
        Kind::WorkloadEntry => Types::EDS,
        Kind::WorkloadGroup | Kind::ProxyConfig => Types::NONE,
        Kind::Secret | Kind::ConfigMap => Types::SDS | Types::ECDS,
        // What these are translated to has keys of its own.
        Kind::Ingress | Kind::IngressClass | Kind::Namespace | Kind::MutatingWebhookConfiguration => Types::NONE,
        kind if matches!(kind.class(), KindClass::GatewayApi | KindClass::Retired) => Types::NONE,
        _ => Types::ALL,
    }
}

#[cfg(test)]
mod tests;
