//! The port through which the server asks for resources, and the keys of their inputs.
//!
//! A generator sees the context and a [`Slot`], never a connection or a node: proxies whose slots are equal get the same
//! bytes, so an input that the slot does not hold cannot leak to other proxies.

use std::{borrow::Cow, fmt, hash::Hash, sync::Arc};

use xxhash_rust::xxh3::Xxh3;

use super::omission::Omission;
use crate::{
    model::{ConfigKey, Identity, MovedNodes, Node},
    push::{Change, ProxyView, PushContext},
    xds::{Resource, ResourceType, Scope, TypeSet},
};

/// Which part of a proxy's resources a slot is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub enum Part {
    /// Outbound clusters, endpoints and routes: shared most widely.
    Routing,
    /// Outbound listeners.
    Outbound,
    /// Resources that depend on the workload itself.
    Own,
    /// Resources that depend on the identity that the client proved: secrets. Never shared across identities.
    Private,
}

impl Part {
    /// The number of parts.
    pub const COUNT: usize = 4;

    /// All parts.
    pub const ALL: [Self; Self::COUNT] = [Self::Routing, Self::Outbound, Self::Own, Self::Private];

    /// Position in [`Part::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Everything that a list of resources is generated from, beside the context.
#[derive(Debug, Clone, PartialEq)]
pub struct Slot {
    /// Which part.
    pub part: Part,
    /// The view: all that generators may know of the proxy.
    pub view: Arc<ProxyView>,
    /// The identity that the client proved; only in the private part.
    pub identity: Option<Identity>,
}

impl Slot {
    /// Hash of everything in the slot: slots with equal keys share resources.
    #[must_use]
    pub fn key(&self) -> u128 {
        let mut hasher = Xxh3::new();
        self.part.hash(&mut hasher);
        self.identity.as_ref().map(ToString::to_string).hash(&mut hasher);
        self.view.key().hash(&mut hasher);
        hasher.digest128()
    }
}

/// The slots of one client, by [`Part::index`].
#[derive(Debug, Clone)]
pub struct Audience {
    /// The slots.
    pub slots: [Slot; Part::COUNT],
}

impl Audience {
    /// An audience of these views.
    #[must_use]
    pub fn new(
        routing: Arc<ProxyView>,
        outbound: Arc<ProxyView>,
        own: Arc<ProxyView>,
        identity: Option<Identity>,
    ) -> Self {
        let slot = |part, view, identity| Slot { part, view, identity };
        Self {
            slots: [
                slot(Part::Routing, routing, None),
                slot(Part::Outbound, outbound, None),
                slot(Part::Own, own.clone(), None),
                slot(Part::Private, own, identity),
            ],
        }
    }
}

/// The identity of a client, and whether it stands for more than the word of its node.
#[derive(Debug, Clone, Copy, Default)]
pub struct Claim<'a> {
    /// The identity; secrets are generated for it.
    pub identity: Option<&'a Identity>,
    /// The client proved it, by a certificate or a token.
    pub is_proven: bool,
}

/// The composition of a type for a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The parts that resources of the type come from, first part first.
    pub parts: &'static [Part],
    /// All resources are generated at once and picked from by name. Otherwise each is generated when it is asked for.
    pub listed: bool,
}

/// The resources of a part that a scope takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pick {
    /// All that are listed.
    Listed,
    /// All that are listed, and those of the scope's names that are not.
    ListedAndNamed,
    /// Those of the scope's names that are listed.
    NamedOfListed,
    /// Those of the scope's names, generated one by one.
    Named,
}

impl Layout {
    /// The resources that a scope takes.
    pub(super) fn pick(self, scope: &Scope) -> Pick {
        match (scope.wildcard, self.listed) {
            // Names may be asked for beside everything that is listed.
            (true, false) if !scope.names.is_empty() => Pick::ListedAndNamed,
            (true, _) => Pick::Listed,
            (false, true) => Pick::NamedOfListed,
            (false, false) => Pick::Named,
        }
    }
}

/// Tells whether a change may change the resource of a name, for types whose resources are generated when asked for.
pub type AffectsName<'a> = Box<dyn Fn(ResourceType, &str) -> bool + 'a>;

/// The effects of a change on a slot.
pub struct Affected<'a> {
    /// Types whose resources may differ.
    pub types: TypeSet,
    /// Which of their resources.
    pub names: AffectsName<'a>,
}

impl Affected<'_> {
    /// Any resource of these types.
    #[must_use]
    pub fn whole(types: TypeSet) -> Self {
        Self { types, names: Box::new(|_, _| true) }
    }
}

impl fmt::Debug for Affected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Affected").field("types", &self.types).finish_non_exhaustive()
    }
}

/// Makes resources. Calls come from worker threads; a panic costs the resources of that call and nothing else.
pub trait Generator: Send + Sync + 'static {
    /// The slots of a node whose client has this identity.
    fn audience(&self, context: &PushContext, node: &Node, claim: Claim<'_>) -> Audience;

    /// The types that may be asked for by a client with this slot; others are answered with nothing.
    fn serves(&self, _slot: &Slot) -> TypeSet {
        TypeSet::MESH
    }

    /// The composition of a type for a proxy.
    fn layout(&self, slot: &Slot, kind: ResourceType) -> Layout;

    /// All resources of a type that the slot is for.
    fn list(&self, context: &PushContext, slot: &Slot, kind: ResourceType) -> Vec<Arc<Resource>>;

    /// The resources of these names, as far as they exist.
    fn named(&self, context: &PushContext, slot: &Slot, kind: ResourceType, names: &[Arc<str>]) -> Vec<Arc<Resource>>;

    /// Content of objects that proxies are not sent.
    fn omissions(&self) -> Vec<Omission> {
        Vec::new()
    }

    /// Grows when these may have changed.
    fn omission_changes(&self) -> u64 {
        0
    }

    /// Those of one slot.
    fn omissions_of(&self, _slot: &Slot) -> Vec<Omission> {
        Vec::new()
    }

    /// The object that a resource is made from, where one decides most of it.
    fn origin(&self, _context: &PushContext, _slot: &Slot, _kind: ResourceType, _name: &str) -> Option<ConfigKey> {
        None
    }

    /// The resources of the slot that the step from one context to the next may change. All of them when in doubt.
    fn affects<'a>(&self, change: &Change<'_>, slot: &Slot) -> Affected<'a>;

    /// Nodes whose slots may be others now than in the context before.
    fn moves<'a>(&self, change: &'a Change<'_>) -> Cow<'a, MovedNodes>;
}

impl fmt::Debug for dyn Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Generator")
    }
}
