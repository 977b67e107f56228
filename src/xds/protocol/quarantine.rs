//! Resources that one client refuses, held back so that it gets the others.
//!
//! A client refuses a response as a whole. The resources that its complaint names are held back and the rest is sent at once;
//! where it names none, or quotes the whole response, that is halved until the faulty ones are found. The client keeps the
//! last accepted version of a resource that is held back. The resource is sent again when it changes, after a pause
//! ([`super::refusals`]), and beside other content.
//!
//! The state of one type on one stream: a client that refuses everything costs others nothing, and itself a bounded number of
//! responses between two pauses. No clock, no I/O.

use std::{collections::BTreeMap, sync::Arc};

use crate::xds::{
    names::NameSet,
    views::{
        resource::{Block, Resource},
        snapshot::Snapshot,
    },
};

/// Resources of one type that are held back from one client. With more of them, all that it refused waits for the pause.
pub(super) const MOST: usize = 32;
/// Responses that are sent in search of the faulty resources before the client has accepted all that is left.
pub(super) const TRIES: u32 = 32;

/// Stands before the whole response where Envoy quotes it: the type of a resource is not that of the response (`DiscoveryResponse`
/// and `DeltaDiscoveryResponse`).
const QUOTED: &str = "DiscoveryResponse ";

/// A refused version of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    hash: u128,
    reason: Arc<str>,
}

/// The consequence of a refused response.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// These resources are sent at once; the others are held back or wait for their turn.
    Rest(Vec<Arc<str>>),
    /// The faulty resources are not found: the refused versions wait, and these with them.
    Unclear(Vec<(Arc<str>, u128)>),
}

/// Resources of one type that one client refuses.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    held: BTreeMap<Arc<str>, Held>,
    /// Held back before, and sent again since.
    tried: BTreeMap<Arc<str>, Held>,
    /// Parts of a refused response that wait for their turn.
    parts: Vec<Vec<(Arc<str>, u128)>>,
    tries: u32,
}

impl Quarantine {
    /// Whether nothing is held back.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.parts.is_empty()
    }

    /// The resources that the client is left without, or with a version of before.
    pub(super) fn names(&self) -> Arc<NameSet> {
        let waiting = self.parts.iter().flatten().map(|(name, _)| name);
        NameSet::of(self.held.keys().chain(waiting).cloned())
    }

    /// Whether no search is under way.
    pub(super) const fn is_at_rest(&self) -> bool {
        self.tries == 0
    }

    /// The resources that are held back, with the client's complaint.
    pub(super) fn held(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.held.iter().map(|(name, held)| (name, &held.reason))
    }

    /// A response with these resources was refused.
    pub(super) fn blame(&mut self, sent: &[Arc<Resource>], message: &str) -> Verdict {
        let before = std::mem::take(&mut self.tried);
        let known = |r: &Resource| before.get(r.name()).is_some_and(|held| held.hash == r.hash());
        // One that quotes the response has the names of all resources, or of the first ones where it is cut.
        let quotes = message.contains(QUOTED);
        let mut guilty: Vec<bool> = sent.iter().map(|r| !quotes && mentions(message, r.name())).collect();
        if !guilty.contains(&true) {
            // One that was refused before is the first suspect; one that stands alone needs no search.
            guilty = sent.iter().map(|r| sent.len() == 1 || known(r)).collect();
        }
        let count = guilty.iter().filter(|guilty| **guilty).count();
        if sent.is_empty() || self.tries >= TRIES || self.held.len() + count > MOST {
            return Verdict::Unclear(std::mem::take(&mut self.parts).into_iter().flatten().collect());
        }
        let reason: Arc<str> = message.into();
        let mut rest = Vec::with_capacity(sent.len() - count);
        for (resource, guilty) in sent.iter().zip(guilty) {
            let (name, hash) = (resource.name().clone(), resource.hash());
            if guilty {
                self.held.insert(name, Held { hash, reason: reason.clone() });
            } else {
                rest.push((name, hash));
            }
        }
        if count == 0 {
            let second = rest.split_off(rest.len() / 2);
            self.parts.push(second);
        }
        if rest.is_empty() {
            rest = self.parts.pop().unwrap_or_default();
        }
        if !rest.is_empty() {
            self.tries += 1;
        }
        Verdict::Rest(rest.into_iter().map(|(name, _)| name).collect())
    }

    /// A response with these resources was accepted. The names that are sent next.
    pub(super) fn accepted(&mut self, sent: &[Arc<Resource>]) -> Vec<Arc<str>> {
        self.tried.clear();
        for resource in sent {
            // The version that the client had before may be sent beside its cluster; it says nothing of the one held back.
            if self.held.get(resource.name()).is_some_and(|held| held.hash == resource.hash()) {
                self.held.remove(resource.name());
            }
        }
        let Some(part) = self.parts.pop() else {
            self.tries = 0;
            return Vec::new();
        };
        part.into_iter().map(|(name, _)| name).collect()
    }

    /// Everything is sent again: the names.
    pub(super) fn release(&mut self) -> Vec<Arc<str>> {
        let parts = std::mem::take(&mut self.parts).into_iter().flatten().map(|(name, _)| name);
        self.tried = std::mem::take(&mut self.held);
        self.tried.keys().cloned().chain(parts).collect()
    }

    /// Lets go of versions that are not in force any more: their names, which are sent again as they are now.
    pub(super) fn let_go(&mut self, target: &Snapshot) -> Vec<Arc<str>> {
        let mut gone = Vec::new();
        let mut keep = |name: &Arc<str>, hash: u128| {
            let stays = target.get(name).is_some_and(|now| now.hash() == hash);
            if !stays {
                gone.push(name.clone());
            }
            stays
        };
        self.held.retain(|name, held| keep(name, held.hash));
        for part in &mut self.parts {
            part.retain(|(name, hash)| keep(name, *hash));
        }
        self.parts.retain(|part| !part.is_empty());
        gone
    }

    /// The snapshot instead of `target`, if resources are held back: these as they are in `base`, or without them.
    pub(super) fn left_of(&self, target: &Arc<Snapshot>, base: Option<&Arc<Snapshot>>) -> Option<Arc<Snapshot>> {
        if self.is_empty() {
            return None;
        }
        let names = self.names();
        // Clients that refuse the same on the same way share the snapshot.
        let shared = base.unwrap_or(target).outgoing();
        shared.kept((target.id(), !names.hash()), || {
            let old = names.names().iter().filter_map(|name| base?.get(name)).cloned();
            Some(Snapshot::without(target, Block::build(old, None), &names))
        })
    }
}

/// Whether a complaint names a resource: its name as a whole, and not as a part of another name.
fn mentions(message: &str, name: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || "_|-/~*".contains(c);
    let begins = |before: &str| !before.ends_with(|c| part(c) || c == '.');
    let ends = |after: &str| {
        let mut next = after.chars();
        match next.next() {
            Some('.' | ':') => !next.next().is_some_and(part),
            other => !other.is_some_and(part),
        }
    };
    let found = |(at, _): (usize, &str)| {
        let (before, after) = message.split_at(at);
        begins(before) && ends(after.get(name.len()..).unwrap_or_default())
    };
    !name.is_empty() && message.match_indices(name).any(found)
}

#[cfg(test)]
mod tests;
