//! The updates that lead from one snapshot to others, kept with it: they end with the snapshot.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use super::{
    snapshot::Snapshot,
    update::{Protocol, Update},
};
use crate::xds::resource_type::ResourceType;

/// A way to a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Way {
    /// Id of the snapshot.
    pub(super) to: u64,
    /// Hash of the names that are sent although they may not have changed.
    pub(super) again: u128,
    /// Id of the list of what clients say they kept; 0 where they say nothing.
    pub(super) claims: u64,
    /// Hash of the names that they are told nothing of.
    pub(super) spared: u128,
    /// All resources are sent.
    pub(super) whole: bool,
    pub(super) kind: ResourceType,
    pub(super) protocol: Protocol,
}

impl Way {
    pub(super) const fn to(new: &Snapshot, kind: ResourceType, protocol: Protocol) -> Self {
        Self { to: new.id(), again: 0, claims: 0, spared: 0, whole: false, kind, protocol }
    }
}

/// The updates that lead from a snapshot to others. They end with the snapshot.
#[derive(Debug, Default)]
pub(crate) struct Onward(Mutex<Ways>);

#[derive(Debug, Default)]
struct Ways {
    updates: VecDeque<(Way, Arc<Update>)>,
    /// By the id of the snapshot that was to be reached and the hash of the names to be kept. `None`: nothing is kept.
    kept: VecDeque<((u64, u128), Option<Weak<Snapshot>>)>,
}

/// Ways that are remembered of each kind: clients that hold one snapshot may want different names again.
const WAYS: usize = 16;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remember<K, V>(list: &mut VecDeque<(K, V)>, key: K, value: V) {
    if list.len() == WAYS {
        list.pop_front();
    }
    list.push_back((key, value));
}

impl Onward {
    /// The value that is found, or is made and kept. It is made without the lock: of several who make it at once, all get the one that
    /// was there first.
    fn find_or_make<T>(
        &self,
        find: impl Fn(&Ways) -> Option<T>,
        make: impl FnOnce() -> T,
        keep: impl FnOnce(&mut Ways, &T),
    ) -> T {
        if let Some(known) = find(&locked(&self.0)) {
            return known;
        }
        let made = make();
        let mut ways = locked(&self.0);
        if let Some(known) = find(&ways) {
            return known;
        }
        keep(&mut ways, &made);
        made
    }

    pub(super) fn update(&self, way: Way, make: impl FnOnce() -> Arc<Update>) -> Arc<Update> {
        let find = |ways: &Ways| ways.updates.iter().find(|(known, _)| *known == way).map(|(_, update)| update.clone());
        self.find_or_make(find, make, |ways, made| remember(&mut ways.updates, way, made.clone()))
    }

    pub(crate) fn kept(&self, key: (u64, u128), make: impl FnOnce() -> Option<Arc<Snapshot>>) -> Option<Arc<Snapshot>> {
        let find = |ways: &Ways| {
            let (_, kept) = ways.kept.iter().find(|(known, _)| *known == key)?;
            kept.as_ref().map_or(Some(None), |snapshot| snapshot.upgrade().map(Some))
        };
        self.find_or_make(find, make, |ways, made| {
            ways.kept.retain(|(known, _)| *known != key);
            remember(&mut ways.kept, key, made.as_ref().map(Arc::downgrade));
        })
    }
}
