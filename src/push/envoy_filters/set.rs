//! The patches of a proxy, by target.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hash,
    sync::{Arc, LazyLock, OnceLock},
};

use xxhash_rust::xxh3::Xxh3Default;

use super::patch::Patch;
use crate::proto::networking::envoy_filter::{ApplyTo, PatchContext};

/// Patches in the order of their application. Equal keys, equal sets.
#[derive(Debug, Default)]
pub struct PatchSet {
    key: u128,
    by_target: BTreeMap<i32, Vec<Arc<Patch>>>,
    /// Hosts, or `namespace/host`, of services that the filters refer to.
    services: BTreeSet<Arc<str>>,
    routing: OnceLock<Arc<Self>>,
    outbound: OnceLock<Arc<Self>>,
}

impl PartialEq for PatchSet {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

static NONE: LazyLock<Arc<PatchSet>> = LazyLock::new(Arc::default);

impl PatchSet {
    /// The set without patches.
    #[must_use]
    pub fn none() -> Arc<Self> {
        NONE.clone()
    }

    /// A set of patches in their order.
    pub(super) fn new(patches: Vec<Arc<Patch>>, services: BTreeSet<Arc<str>>) -> Self {
        if patches.is_empty() && services.is_empty() {
            return Self::default();
        }
        let mut hasher = Xxh3Default::new();
        services.hash(&mut hasher);
        let mut by_target: BTreeMap<i32, Vec<Arc<Patch>>> = BTreeMap::new();
        for patch in patches {
            (&patch.filter, patch.identity()).hash(&mut hasher);
            by_target.entry(patch.apply_to.into()).or_default().push(patch);
        }
        Self { key: hasher.digest128(), by_target, services, ..Self::default() }
    }

    /// A hash of everything in the set; 0 for the set without patches.
    #[must_use]
    pub const fn key(&self) -> u128 {
        self.key
    }

    /// Whether nothing is patched.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.key == 0
    }

    /// The patches of one target.
    #[must_use]
    pub fn of(&self, apply_to: ApplyTo) -> &[Arc<Patch>] {
        self.by_target.get(&i32::from(apply_to)).map_or(&[], Vec::as_slice)
    }

    /// All patches, target by target.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Patch>> {
        self.by_target.values().flatten()
    }

    /// Services that gateways get clusters for: hosts, or `namespace/host`.
    pub fn services(&self) -> impl Iterator<Item = &str> {
        self.services.iter().map(|service| &**service)
    }

    /// The patches of the clusters and routes of a sidecar's outbound traffic.
    #[must_use]
    pub fn routing(&self) -> Arc<Self> {
        let targets = [ApplyTo::Cluster, ApplyTo::RouteConfiguration, ApplyTo::VirtualHost, ApplyTo::HttpRoute];
        self.routing.get_or_init(|| self.outbound_of(&targets)).clone()
    }

    /// The patches of a sidecar's outbound listeners.
    #[must_use]
    pub fn outbound(&self) -> Arc<Self> {
        let targets = [
            ApplyTo::Listener,
            ApplyTo::FilterChain,
            ApplyTo::NetworkFilter,
            ApplyTo::HttpFilter,
            ApplyTo::ListenerFilter,
        ];
        self.outbound.get_or_init(|| self.outbound_of(&targets)).clone()
    }

    fn outbound_of(&self, targets: &[ApplyTo]) -> Arc<Self> {
        let patches = targets.iter().flat_map(|target| self.of(*target));
        let patches: Vec<_> = patches.filter(|patch| patch.is_for(PatchContext::SidecarOutbound)).cloned().collect();
        if patches.is_empty() { Self::none() } else { Arc::new(Self::new(patches, BTreeSet::new())) }
    }
}
