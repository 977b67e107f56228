//! The difference between two contexts, found by comparing them: the one source for choosing the proxies and types to push.
//!
//! Invariants: no difference is left out, whatever a push request says; parts that both contexts share are passed over by
//! pointer, so a comparison costs no more than the change and a walk over pointers of the lists that changed.

mod inputs;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use parking_lot::Mutex;

pub(super) use inputs::InputChanges;

use super::{
    ProxyView, PushContext, SidecarScope, destination_rules,
    sidecar_scope::{ScopeChange, ScopedRules},
};
use crate::{
    model::{
        EndpointSet, Hostname, Identity, Kind, MovedNodes, PushKey, PushKind, Resolution, Service, difference,
        features::JwksFetchMode, key_set::KeyServer,
    },
    proto::mesh::mesh_config::extension_provider::{Provider, open_telemetry_tracing_provider::Sampling},
};

/// The difference between a context and the one before it.
#[derive(Debug, Default)]
pub struct Changes {
    /// Everything may differ: mesh settings, feature flags, or the gateways between networks.
    pub(super) everything: bool,
    /// Objects by kind, translated ones included.
    pub(super) inputs: InputChanges,
    /// Services, aliases resolved, as they were and as they are.
    pub(super) services: Vec<Arc<Service>>,
    /// Hosts of the DestinationRules that differ; some may be wildcards.
    pub(super) rule_hosts: BTreeSet<Hostname>,
    /// Hosts and namespaces whose endpoints differ.
    pub(super) endpoints: Vec<EndpointChange>,
    /// Endpoint picker settings of translated rules.
    pub(super) pools: bool,
    /// Permissions by ReferenceGrants.
    pub(super) grants: bool,
    /// Proxies with other services, labels, patches or another locality.
    pub(super) nodes: MovedNodes,
}

/// A difference in the endpoints of one service.
#[derive(Debug)]
pub(super) struct EndpointChange {
    pub(super) host: Hostname,
    pub(super) namespace: Arc<str>,
    /// The service accounts differ: clusters name them.
    pub(super) accounts: bool,
    /// A port's lack of endpoints, or of sidecars on them, differs: an inferred mode of mutual TLS depends on it.
    pub(super) modes: bool,
}

impl Changes {
    /// Compares two contexts, given how their inputs differ.
    pub(super) fn between(before: &PushContext, now: &PushContext, inputs: InputChanges) -> Self {
        let networks = before.network_gateways != now.network_gateways;
        let everything = inputs.settings || networks;
        let (old, new) = (&before.inputs.registry, &now.inputs.registry);
        let mut nodes = new.moved_since(old);
        // A Sidecar decides whether a proxy's own addresses are read.
        if everything || inputs.any(&[Kind::Sidecar]) || before.read_keys != now.read_keys {
            nodes = MovedNodes::all();
        }
        // An EnvoyFilter is a part of the views of the proxies that it selects, or selected.
        if inputs.any(&[Kind::EnvoyFilter]) {
            let changed: HashSet<_> = inputs.of_kind(Kind::EnvoyFilter).collect();
            [before, now].into_iter().for_each(|context| context.envoy_filters.select(&changed, &mut nodes));
        }
        let services = difference::of_lists(&before.services.all, &now.services.all, |s| s.stamp);
        let same = |a: &Arc<EndpointSet>, b: &Arc<EndpointSet>| Arc::ptr_eq(a, b) || a.stamp == b.stamp;
        let endpoints = difference::of_maps(&old.endpoints.by_service, &new.endpoints.by_service, same);
        let translated = !Arc::ptr_eq(&before.translation, &now.translation);
        Self {
            everything,
            inputs,
            services: services.into_iter().cloned().collect(),
            rule_hosts: rule_hosts(before, now),
            endpoints: endpoints.into_iter().map(EndpointChange::of).collect(),
            pools: translated && before.translation.pools != now.translation.pools,
            grants: translated && !now.translation.grants_as(&before.translation),
            nodes,
        }
    }

    /// Proxies whose views may differ.
    #[must_use]
    pub const fn nodes(&self) -> &MovedNodes {
        &self.nodes
    }

    /// Whether the Secrets of this identity may differ for a reason that lies with the identity itself.
    #[must_use]
    pub fn touches_secrets_of(&self, identity: &Identity) -> bool {
        self.inputs.certificates.contains(identity) || self.inputs.secret_access.contains(identity)
    }

    /// Whether no resource of any proxy can differ.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.everything
            && self.inputs.is_empty()
            && self.services.is_empty()
            && self.endpoints.is_empty()
            && !self.pools
            && !self.grants
    }

    /// Keys of the Istio objects among the changes that no handler reports: those that others are translated to.
    #[must_use]
    pub fn translated_keys(&self) -> Vec<PushKey> {
        let kinds = [Kind::Gateway, Kind::VirtualService, Kind::DestinationRule];
        let of_kind = |kind: Kind| {
            let key = move |(namespace, name): &(Arc<str>, Arc<str>)| PushKey {
                kind: PushKind::Config(kind),
                name: name.clone(),
                namespace: namespace.clone(),
            };
            self.inputs.of_kind(kind).map(key)
        };
        kinds.into_iter().flat_map(of_kind).collect()
    }
}

impl EndpointChange {
    fn of((key, before, now): difference::Differing<'_, (Hostname, Arc<str>), Arc<EndpointSet>>) -> Self {
        let accounts = |set: Option<&Arc<EndpointSet>>| set.map(|s| s.service_accounts.clone()).unwrap_or_default();
        Self {
            host: key.0.clone(),
            namespace: key.1.clone(),
            accounts: accounts(before) != accounts(now),
            modes: modes(before) != modes(now),
        }
    }
}

/// The services, as they are written, that a provider names.
fn services_of_provider(provider: &Provider) -> Vec<&String> {
    match provider {
        Provider::Sds(p) => vec![&p.service],
        Provider::EnvoyExtAuthzHttp(p) => vec![&p.service],
        Provider::EnvoyExtAuthzGrpc(p) => vec![&p.service],
        Provider::Zipkin(p) => vec![&p.service],
        Provider::Datadog(p) => vec![&p.service],
        Provider::Skywalking(p) => vec![&p.service],
        Provider::Opentelemetry(p) => {
            let Some(Sampling::DynatraceSampler(sampler)) = &p.sampling else { return vec![&p.service] };
            std::iter::once(&p.service).chain(sampler.http_service.as_ref().map(|own| &own.service)).collect()
        }
        Provider::EnvoyHttpAls(p) => vec![&p.service],
        Provider::EnvoyTcpAls(p) => vec![&p.service],
        Provider::EnvoyOtelAls(p) => vec![&p.service],
        _ => Vec::new(),
    }
}

fn rule_hosts(before: &PushContext, now: &PushContext) -> BTreeSet<Hostname> {
    let list = |context: &'_ PushContext| context.inputs.configs.by_kind.get(&Kind::DestinationRule).cloned();
    let (old, new) = (list(before).unwrap_or_default(), list(now).unwrap_or_default());
    let changed = difference::of_lists(&old, &new, |c| c.stamp);
    changed.into_iter().filter_map(|c| destination_rules::host_of(c, &now.mesh().domain)).collect()
}

fn rules_of<'a>(context: &'a PushContext, scope: &'a SidecarScope) -> ScopedRules<'a> {
    ScopedRules { scope, rules: &context.destination_rules, inputs: &context.inputs }
}

/// Ports that have endpoints, with the modes of these.
fn modes(set: Option<&Arc<EndpointSet>>) -> BTreeSet<(u32, &str, &str)> {
    let endpoints = set.into_iter().flat_map(|set| set.iter());
    endpoints.map(|e| (e.legacy_cluster_port_key, &*e.service_port_name, &*e.tls_mode)).collect()
}

type ScopePair = (Arc<SidecarScope>, Arc<SidecarScope>, Arc<ScopeChange>);

/// Two contexts and their difference, to be asked about views.
#[derive(Debug)]
pub struct Change<'a> {
    /// The context before.
    pub before: &'a PushContext,
    /// The context now.
    pub now: &'a PushContext,
    differences: Arc<Changes>,
    /// Differences between two scopes, by their addresses; the scopes are held so that the addresses stay theirs.
    scopes: Mutex<HashMap<(usize, usize), ScopePair>>,
}

impl<'a> Change<'a> {
    /// Compares two contexts.
    #[must_use]
    pub fn between(before: &'a PushContext, now: &'a PushContext) -> Self {
        Self { before, now, differences: now.changes_since(before), scopes: Mutex::default() }
    }

    /// The difference between the two contexts.
    #[must_use]
    pub fn differences(&self) -> &Changes {
        &self.differences
    }

    /// The scopes of a view before and now, and their difference.
    pub(super) fn scopes(&self, view: &ProxyView) -> ScopePair {
        let (before, now) = (self.before.scope(view), self.now.scope(view));
        let key = (Arc::as_ptr(&before) as usize, Arc::as_ptr(&now) as usize);
        let known = || self.scopes.lock();
        if let Some(pair) = known().get(&key) {
            return pair.clone();
        }
        let mut change = ScopeChange::between(&before, &now);
        if !self.differences.rule_hosts.is_empty() {
            change.add_rules(rules_of(self.before, &before), rules_of(self.now, &now), &self.differences.rule_hosts);
        }
        let change = Arc::new(change);
        let pair = (before, now, change);
        known().insert(key, pair.clone());
        pair
    }

    /// Hosts that a namespace may see whose services differ.
    pub(super) fn seen_hosts(&self, namespace: &str) -> HashSet<Hostname> {
        let seen = |context: &PushContext, service: &Service| context.services.is_visible(service, namespace);
        let services = self.differences.services.iter().filter(|s| seen(self.before, s) || seen(self.now, s));
        services.map(|s| s.hostname.clone()).collect()
    }

    /// Resolution of the service that an endpoint change belongs to, before and now, where it is known.
    pub(super) fn resolution(&self, host: &str, namespace: &str) -> [Option<Resolution>; 2] {
        [self.before, self.now].map(|context| context.services.get(host, namespace).map(|s| s.resolution))
    }

    /// Whether services differ that listeners name: of extension providers and of key servers.
    pub(super) fn moves_providers(&self) -> bool {
        let providers = self.now.mesh().config.extension_providers.iter().filter_map(|p| p.provider.as_ref());
        let hosts = providers.flat_map(services_of_provider);
        let host_of = |service: &'a String| service.split_once('/').map_or(service.as_str(), |(_, host)| host);
        let mut named = hosts.map(host_of);
        let moved = |host: &str| self.differences.services.iter().any(|s| *s.hostname == *host);
        named.any(moved) || self.moves_key_servers()
    }

    /// Whether services differ that Envoy fetches keys from.
    fn moves_key_servers(&self) -> bool {
        if self.differences.services.is_empty() || self.now.features().jwt_enable_remote_jwks == JwksFetchMode::Istiod {
            return false;
        }
        let policies = self.now.inputs.configs.list(Kind::RequestAuthentication);
        let rules = policies.iter().filter_map(|c| c.request_authentication()).flat_map(|p| &p.jwt_rules);
        let mut servers = rules.filter_map(|rule| KeyServer::of(&rule.jwks_uri));
        servers.any(|server| self.differences.services.iter().any(|s| *s.hostname == *server.host))
    }
}
