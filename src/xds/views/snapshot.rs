//! Snapshots of one type, and the difference between two of them.
//!
//! A connection keeps a pointer to the snapshot that its client acknowledged. All clients of a view move between the same
//! two snapshots, so the difference and its encoding are made once and shared ([`super::Updates`]).

use std::{
    cmp::Ordering,
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::{
    outgoing::OutgoingUpdates,
    resource::{Block, Resource},
};
use crate::xds::{
    names::{NameSet, Scope},
    wire,
};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// All resources of one type within one scope.
#[derive(Debug)]
pub struct Snapshot {
    id: u64,
    blocks: Vec<Arc<Block>>,
    scope: Scope,
    digest: u128,
    outgoing: OutgoingUpdates,
    /// The final snapshot that this intermediate one leads to.
    _next: Option<Arc<Snapshot>>,
}

impl Snapshot {
    /// Arranges blocks. A name that two blocks hold counts in the first one only.
    #[must_use]
    pub fn new(blocks: Vec<Arc<Block>>, scope: Scope) -> Arc<Self> {
        Self::arrange(blocks, scope, None)
    }

    /// Serves `block` ahead of `next` and keeps `next` alive: otherwise it would be made anew for each client
    /// as long as none has come to hold it itself.
    pub(crate) fn before(next: &Arc<Self>, block: Arc<Block>) -> Arc<Self> {
        let blocks = std::iter::once(block).chain(next.blocks.iter().cloned()).collect();
        Self::arrange(blocks, next.scope.clone(), Some(next.clone()))
    }

    /// `next` without the resources of these names, but for those that `block` has.
    pub(crate) fn without(next: &Arc<Self>, block: Arc<Block>, names: &NameSet) -> Arc<Self> {
        let stays = |r: &&Arc<Resource>| !names.contains(r.name());
        let left = next.blocks.iter().map(|of| {
            let whole = of.resources().iter().all(|r| !names.contains(r.name()));
            if whole { of.clone() } else { Block::build(of.resources().iter().filter(stays).cloned(), None) }
        });
        let blocks = std::iter::once(block).chain(left).collect();
        Self::arrange(blocks, next.scope.clone(), Some(next.clone()))
    }

    fn arrange(mut blocks: Vec<Arc<Block>>, scope: Scope, next: Option<Arc<Self>>) -> Arc<Self> {
        for at in 1..blocks.len() {
            let (before, rest) = blocks.split_at_mut(at);
            let Some(block) = rest.first_mut() else { continue };
            let taken = |r: &Arc<Resource>| before.iter().any(|b| b.get(r.name()).is_some());
            if block.resources().iter().any(taken) {
                *block = Block::build(block.resources().iter().filter(|r| !taken(r)).cloned(), None);
            }
        }
        let digest = blocks.iter().fold(0, |digest, block| match (digest, block.digest()) {
            (0, first) => first,
            (before, next) => xxh3_128_with_seed(&before.to_le_bytes(), next as u64) ^ next,
        });
        Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Relaxed),
            blocks,
            scope,
            digest,
            outgoing: OutgoingUpdates::default(),
            _next: next,
        })
    }

    /// Tells it from all other snapshots.
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// The updates that lead from it.
    pub(crate) const fn outgoing(&self) -> &OutgoingUpdates {
        &self.outgoing
    }

    /// The bytes of all its resources.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.bytes()).sum()
    }

    /// Its scope.
    #[must_use]
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The blocks.
    #[must_use]
    pub fn blocks(&self) -> &[Arc<Block>] {
        &self.blocks
    }

    /// Hash of names and content.
    #[must_use]
    pub const fn digest(&self) -> u128 {
        self.digest
    }

    /// The version that clients see.
    #[must_use]
    pub fn version(&self) -> String {
        wire::version(self.digest)
    }

    /// The resource of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        self.blocks.iter().find_map(|b| b.get(name))
    }

    /// The number of resources.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.iter().map(|b| b.resources().len()).sum()
    }

    /// The number of subscribed names without a resource.
    #[must_use]
    pub fn unknown(&self) -> usize {
        let known = self.len() - self.blocks.iter().map(|block| block.unknown()).sum::<usize>();
        if self.scope.wildcard { 0 } else { self.scope.names.names().len().saturating_sub(known) }
    }

    /// Whether there is no resource.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All resources, block by block.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.blocks.iter().flat_map(|b| b.resources())
    }

    fn sorted_without<'a>(&'a self, shared: &[Arc<Block>]) -> Vec<&'a Arc<Resource>> {
        let own = self.blocks.iter().filter(|b| !shared.iter().any(|s| Arc::ptr_eq(s, b)));
        let mut list: Vec<_> = own.flat_map(|b| b.resources()).collect();
        if self.blocks.len() > 1 {
            list.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        }
        list
    }
}

/// The changes from one snapshot to another, as far as the second one's scope reaches.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Difference {
    /// New and changed resources, in order of their names.
    pub changed: Vec<Arc<Resource>>,
    /// Names that no longer exist, or that were asked for and never existed.
    pub gone: BTreeSet<Arc<str>>,
}

impl Difference {
    /// The difference between `old` and `new`.
    #[must_use]
    pub fn between(old: Option<&Snapshot>, new: &Snapshot) -> Self {
        let mut difference = Self::default();
        let Some(old) = old else {
            difference.changed = new.sorted_without(&[]).into_iter().cloned().collect();
            difference.gone = new.scope.names.names().iter().filter(|n| new.get(n).is_none()).cloned().collect();
            return difference;
        };
        let (mut left, mut right) = (
            old.sorted_without(&new.blocks).into_iter().peekable(),
            new.sorted_without(&old.blocks).into_iter().peekable(),
        );
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.name().cmp(b.name()),
            };
            match order {
                Ordering::Less => {
                    let name = left.next().map(|r| r.name());
                    difference.gone.extend(name.filter(|n| new.scope.contains(n) && new.get(n).is_none()).cloned());
                }
                Ordering::Greater => difference.changed.extend(right.next().filter(|r| !holds(old, r)).cloned()),
                Ordering::Equal => {
                    let before = left.next().map(|r| r.hash());
                    difference.changed.extend(right.next().filter(|r| Some(r.hash()) != before).cloned());
                }
            }
        }
        if !Arc::ptr_eq(&old.scope.names, &new.scope.names) {
            let fresh = new.scope.names.names().iter().filter(|n| !old.scope.names.contains(n) && new.get(n).is_none());
            difference.gone.extend(fresh.cloned());
        }
        difference
    }

    /// The same without these names.
    #[must_use]
    pub fn sparing(mut self, names: &NameSet) -> Self {
        self.changed.retain(|r| !names.contains(r.name()));
        self.gone.retain(|name| !names.contains(name));
        self
    }

    /// Whether nothing has changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.gone.is_empty()
    }
}

/// A resource that moved from one block to another is not new.
fn holds(old: &Snapshot, resource: &Resource) -> bool {
    old.blocks.len() > 1 && old.get(resource.name()).is_some_and(|r| r.hash() == resource.hash())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(content: &[(&str, &str)]) -> Arc<Block> {
        Block::build(content.iter().map(|(n, v)| Arc::new(Resource::of_parts(*n, "t/x", v.as_bytes()))), None)
    }

    fn names(difference: &Difference) -> (Vec<&str>, Vec<&str>) {
        (difference.changed.iter().map(|r| &**r.name()).collect(), difference.gone.iter().map(|n| &**n).collect())
    }

    fn set(names: &[&str]) -> Arc<NameSet> {
        NameSet::of(names.iter().map(|n| Arc::from(*n)))
    }

    #[test]
    fn differences_of_wildcards() {
        let shared = block(&[("m", "1"), ("n", "1")]);
        let old = Snapshot::new(vec![shared.clone(), block(&[("a", "1"), ("b", "1"), ("c", "1")])], Scope::all());
        let new = Snapshot::new(vec![shared, block(&[("b", "2"), ("c", "1"), ("d", "1")])], Scope::all());
        assert_eq!(names(&Difference::between(Some(&old), &new)), (vec!["b", "d"], vec!["a"]));
        assert_eq!(names(&Difference::between(None, &new)).0, ["b", "c", "d", "m", "n"]);
        assert!(Difference::between(Some(&new), &new).is_empty());
    }

    #[test]
    fn a_resource_may_move_between_blocks() {
        let old = Snapshot::new(vec![block(&[("a", "1")]), block(&[("b", "1")])], Scope::all());
        let new = Snapshot::new(vec![block(&[("a", "1"), ("b", "1")]), block(&[])], Scope::all());
        assert!(Difference::between(Some(&old), &new).is_empty());
        let twice = Snapshot::new(vec![block(&[("a", "1")]), block(&[("a", "2"), ("b", "1")])], Scope::all());
        assert_eq!(twice.len(), 2);
        assert!(Difference::between(Some(&old), &twice).is_empty());
    }

    #[test]
    fn differences_of_named_scopes_stay_inside() {
        let old = Snapshot::new(vec![block(&[("a", "1"), ("b", "1")])], Scope::of(set(&["a", "b"])));
        let new = Snapshot::new(vec![block(&[("a", "1")])], Scope::of(set(&["a", "x"])));
        assert_eq!(names(&Difference::between(Some(&old), &new)), (vec![], vec!["x"]), "b was given up, x is unknown");
        let none = Snapshot::new(vec![block(&[])], Scope::of(set(&["a", "b"])));
        assert_eq!(names(&Difference::between(Some(&old), &none)), (vec![], vec!["a", "b"]));
    }
}
