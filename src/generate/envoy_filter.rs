//! Patches of EnvoyFilters, applied to generated messages before they are encoded.
//!
//! Follows Istio's order inside a resource: removals and merges of a thing, then the things inside it, then additions. A patch
//! that does not fit is skipped alone and told with its place; the rest of the resource keeps its other patches. A resource that
//! no patch touches stays the very message that it was. Pure: the patches come in as a [`PatchSet`], a part of the view.

pub mod cluster;
mod extension;
mod filters;
mod fitting;
pub mod listener;
mod lists;
mod matching;
mod merge;
pub mod route;

pub use extension::{bootstrap, extension_configs};
pub use fitting::fitting;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    sync::Arc,
};

use parking_lot::Mutex;

use super::check::Refusal;
use crate::{
    proto::networking::envoy_filter::{ApplyTo, PatchContext, patch::Operation},
    push::{
        ProxyView,
        envoy_filters::{Patch, PatchSet},
    },
};

/// Server ports by the port in the name of a gateway's route configuration.
pub type PortMap = BTreeMap<u32, BTreeSet<u32>>;

/// The application of one set of patches to the resources of one context.
#[derive(Debug)]
pub struct Patching<'a> {
    set: &'a PatchSet,
    context: PatchContext,
    ports: Option<&'a PortMap>,
    /// Patches that are known not to fit the resource at hand.
    off: BTreeSet<(u64, usize)>,
    /// Patches that changed the resource at hand, in order.
    applied: Mutex<Vec<Arc<Patch>>>,
    /// Patches that were skipped for the resource at hand.
    skipped: Mutex<Vec<Refusal>>,
    told: Vec<Refusal>,
}

impl<'a> Patching<'a> {
    /// For the resources of a context.
    #[must_use]
    pub fn new(set: &'a PatchSet, context: PatchContext) -> Self {
        Self {
            set,
            context,
            ports: None,
            off: BTreeSet::new(),
            applied: Mutex::default(),
            skipped: Mutex::default(),
            told: Vec::new(),
        }
    }

    /// With the server ports of a gateway.
    #[must_use]
    pub const fn with_ports(mut self, ports: &'a PortMap) -> Self {
        self.ports = Some(ports);
        self
    }

    /// The same patches, for another resource.
    #[must_use]
    pub fn again(&self) -> Self {
        Self { ports: self.ports, ..Self::new(self.set, self.context) }
    }

    /// The patches that were skipped.
    #[must_use]
    pub fn into_refusals(mut self) -> Vec<Refusal> {
        self.keep();
        self.told
    }

    fn patches(&self, target: ApplyTo) -> impl Iterator<Item = &'a Arc<Patch>> + '_ {
        self.set.of(target).iter().filter(|patch| patch.is_for(self.context) && !self.off.contains(&patch.identity()))
    }

    /// Whether a patch may add things that belong to no resource: one without a context does so once for a proxy.
    fn adds_here(&self, patch: &Patch) -> bool {
        patch.operation == Operation::Add
            && (patch.context != PatchContext::Any
                || matches!(self.context, PatchContext::SidecarOutbound | PatchContext::Gateway))
    }

    /// Whether the other side of a sidecar's traffic, whose resources are made apart, has a resource of this name.
    fn is_of_other_side(&self, target: ApplyTo, name: &str) -> bool {
        match self.context {
            PatchContext::SidecarOutbound => {
                name.starts_with("inbound|") || ["InboundPassthroughCluster", "virtualInbound"].contains(&name)
            }
            PatchContext::SidecarInbound => self.set.of(target).iter().any(|patch| {
                let adds = patch.operation == Operation::Add && patch.is_for(PatchContext::SidecarOutbound);
                adds && patch.value.as_ref().is_some_and(|value| value.name == name)
            }),
            _ => false,
        }
    }

    fn applied(&self, patch: &Arc<Patch>) {
        let mut applied = self.applied.lock();
        if applied.last().is_none_or(|last| !Arc::ptr_eq(last, patch)) {
            applied.push(patch.clone());
        }
    }

    fn skip(&self, patch: &Patch, resource: impl Display, reason: &str) {
        let refusal = Refusal::new(Some(patch.filter.clone()), patch.skipped(&resource.to_string(), reason));
        let mut skipped = self.skipped.lock();
        if !skipped.contains(&refusal) {
            skipped.push(refusal);
        }
    }

    /// The result of a patch on a resource, which is written out for a failure only.
    fn done(&self, patch: &Arc<Patch>, resource: impl Display, result: Result<(), String>) {
        match result {
            Ok(()) => self.applied(patch),
            Err(reason) => self.skip(patch, resource, &reason),
        }
    }

    /// Begins anew with the resource at hand.
    fn begin(&self) {
        self.applied.lock().clear();
        self.skipped.lock().clear();
    }

    /// The resource at hand is done.
    fn keep(&mut self) {
        for patch in std::mem::take(&mut *self.applied.lock()) {
            patch.note_applied();
        }
        for refusal in std::mem::take(&mut *self.skipped.lock()) {
            if !self.told.contains(&refusal) {
                self.told.push(refusal);
            }
        }
        self.off.clear();
    }
}

/// The context of a proxy's own side of traffic: that of a gateway, or the inbound one of a sidecar.
#[must_use]
pub fn own_context(view: &ProxyView) -> PatchContext {
    if view.is_router() { PatchContext::Gateway } else { PatchContext::SidecarInbound }
}

/// The context of the traffic to services.
#[must_use]
pub fn service_context(view: &ProxyView) -> PatchContext {
    if view.is_router() { PatchContext::Gateway } else { PatchContext::SidecarOutbound }
}

const fn is_merge(operation: Operation) -> bool {
    matches!(operation, Operation::Merge | Operation::MergeAndReplaceList)
}

#[cfg(test)]
mod tests;
