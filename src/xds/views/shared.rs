//! Equal content is held once: resources, blocks of them, and snapshots of those, whichever view they were made for.
//!
//! Weak tables: values without a holder are forgotten. A hash finds a candidate and equality decides, so two contents that
//! come to have one hash are not mixed up.

use std::{
    collections::HashSet,
    hash::Hash,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use dashmap::DashMap;

use super::{
    resource::{Block, Resource},
    snapshot::Snapshot,
};
use crate::xds::{names::Scope, resource_type::ResourceType};

/// Tables below this size are not searched for dropped values.
const PRUNE_ABOVE: usize = 1024;

/// The place of a value in a table of weak pointers. A value holds its own: nothing is left in the table when it is dropped.
pub(crate) struct TableEntry<T> {
    table: Weak<DashMap<u128, Weak<T>>>,
    key: u128,
}

impl<T> std::fmt::Debug for TableEntry<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Entry").field(&self.key).finish()
    }
}

impl<T> TableEntry<T> {
    pub(crate) fn new(table: &Arc<DashMap<u128, Weak<T>>>, key: u128) -> Self {
        Self { table: Arc::downgrade(table), key }
    }
}

impl<T> Drop for TableEntry<T> {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            // Another thread may have made the value anew by now.
            table.remove_if(&self.key, |_, held| held.strong_count() == 0);
        }
    }
}

/// Values by key, as long as they have a holder.
#[derive(Debug)]
pub(crate) struct Table<K: Eq + Hash, T> {
    known: DashMap<K, Weak<T>>,
    prune_at: AtomicUsize,
}

impl<K: Eq + Hash, T> Default for Table<K, T> {
    fn default() -> Self {
        Self { known: DashMap::new(), prune_at: AtomicUsize::new(PRUNE_ABOVE) }
    }
}

impl<K: Eq + Hash, T> Table<K, T> {
    /// The one that is known, if `same` says so, else this one.
    pub(crate) fn one(&self, key: K, new: Arc<T>, same: impl FnOnce(&T, &T) -> bool) -> Arc<T> {
        let mut entry = self.known.entry(key).or_default();
        if let Some(known) = entry.upgrade().filter(|known| Arc::ptr_eq(known, &new) || same(known, &new)) {
            return known;
        }
        *entry = Arc::downgrade(&new);
        new
    }

    /// The value of a key, if it has a holder.
    pub(crate) fn get(&self, key: &K) -> Option<Arc<T>> {
        self.known.get(key).and_then(|held| held.upgrade())
    }

    /// The value of a key; made by `make` when it has no holder. Two callers that ask at once may both make it.
    pub(crate) fn get_or(&self, key: K, make: impl FnOnce() -> Option<T>) -> Option<Arc<T>> {
        if let Some(known) = self.get(&key) {
            return Some(known);
        }
        let made = Arc::new(make()?);
        self.known.insert(key, Arc::downgrade(&made));
        Some(made)
    }

    /// The same for a value that may have to be made anew each time: `make` tells whether it is kept.
    pub(crate) fn get_or_make(&self, key: K, make: impl FnOnce() -> (T, bool)) -> Arc<T> {
        if let Some(known) = self.get(&key) {
            return known;
        }
        let (made, keep) = make();
        let made = Arc::new(made);
        if keep {
            self.known.insert(key, Arc::downgrade(&made));
        }
        made
    }

    /// Forgets values without a holder, now and then.
    pub(crate) fn prune(&self) {
        if self.known.len() > self.prune_at.load(Ordering::Relaxed) {
            self.known.retain(|_, held| held.strong_count() > 0);
            self.known.shrink_to_fit();
            self.prune_at.store((self.known.len() * 2).max(PRUNE_ABOVE), Ordering::Relaxed);
        }
    }
}

/// The tables that all views share.
#[derive(Debug, Default)]
pub(crate) struct SharedTables {
    resources: Table<u128, Resource>,
    blocks: Table<u128, Block>,
    snapshots: Table<(ResourceType, (bool, u128), u128), Snapshot>,
}

impl SharedTables {
    /// Resources that are alive, or were until a moment ago.
    pub(crate) fn resources(&self) -> usize {
        self.resources.known.len()
    }

    /// The resources of the snapshots that are held, by type; each once.
    pub(crate) fn held(&self) -> Vec<(ResourceType, Arc<Resource>)> {
        // The table is locked in parts while it is read, so the snapshots are taken out first.
        let held = self.snapshots.known.iter().filter_map(|entry| Some((entry.key().0, entry.value().upgrade()?)));
        let snapshots: Vec<(ResourceType, Arc<Snapshot>)> = held.collect();
        let mut seen = HashSet::new();
        let resources = snapshots.iter().flat_map(|(kind, snapshot)| snapshot.iter().map(|resource| (*kind, resource)));
        let new = resources.filter(|(kind, resource)| seen.insert((*kind, Arc::as_ptr(resource))));
        new.map(|(kind, resource)| (kind, resource.clone())).collect()
    }

    /// The resources, each the one that others hold where there is an equal one.
    pub(crate) fn all(&self, resources: Vec<Arc<Resource>>) -> Vec<Arc<Resource>> {
        let shared = resources.into_iter().map(|r| self.resources.one(r.hash(), r, |a, b| a == b)).collect();
        self.resources.prune();
        shared
    }

    /// The block, or the equal one that others hold.
    pub(crate) fn block(&self, block: Arc<Block>) -> Arc<Block> {
        self.blocks.prune();
        self.blocks.one(block.digest(), block, |a, b| a == b)
    }

    /// The snapshot of these blocks, or the equal one that others hold.
    pub(crate) fn snapshot(&self, kind: ResourceType, scope: &Scope, blocks: Vec<Arc<Block>>) -> Arc<Snapshot> {
        self.snapshots.prune();
        let snapshot = Snapshot::new(blocks, scope.clone());
        let key = (kind, scope.key(), snapshot.digest());
        self.snapshots.one(key, snapshot, |a, b| a.scope() == b.scope() && a.blocks() == b.blocks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(shared: &SharedTables, value: &str) -> Arc<Block> {
        let resource = Arc::new(Resource::of_parts("a", "t/x", value.as_bytes()));
        shared.block(Block::build(shared.all(vec![resource]), None))
    }

    #[test]
    fn equal_content_is_one() {
        let shared = SharedTables::default();
        let (one, two) = (block(&shared, "1"), block(&shared, "1"));
        assert!(Arc::ptr_eq(&one, &two));
        let snapshot = |blocks| shared.snapshot(ResourceType::Cluster, &Scope::all(), blocks);
        let held = snapshot(vec![one]);
        assert!(Arc::ptr_eq(&held, &snapshot(vec![two])));
        assert!(!Arc::ptr_eq(&held, &snapshot(vec![block(&shared, "2")])));
        let routes = shared.snapshot(ResourceType::Route, &Scope::all(), held.blocks().to_vec());
        assert!(!Arc::ptr_eq(&held, &routes), "a snapshot is of one type");
    }

    #[test]
    fn values_without_a_holder_are_forgotten() {
        let shared = SharedTables::default();
        for i in 0..3 * PRUNE_ABOVE {
            shared.all(vec![Arc::new(Resource::of_parts("a", "t/x", i.to_string().as_bytes()))]);
        }
        assert!(shared.resources() <= PRUNE_ABOVE + 1);
    }
}
