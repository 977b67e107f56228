//! The updates that lead from one snapshot to others, kept with it: they end with the snapshot.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use super::{
    snapshot::Snapshot,
    update::{Protocol, Update},
};
use crate::xds::resource_type::ResourceType;

/// A way to a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct UpdateKey {
    /// Id of the snapshot.
    pub(super) to: u64,
    /// Hash of the names that are sent although they may not have changed.
    pub(super) again: u128,
    /// Id of the list of versions that clients claim to hold; 0 for none.
    pub(super) claims: u64,
    /// Hash of the names that they are told nothing of.
    pub(super) spared: u128,
    /// All resources are sent.
    pub(super) whole: bool,
    pub(super) kind: ResourceType,
    pub(super) protocol: Protocol,
}

impl UpdateKey {
    pub(super) const fn to(new: &Snapshot, kind: ResourceType, protocol: Protocol) -> Self {
        Self { to: new.id(), again: 0, claims: 0, spared: 0, whole: false, kind, protocol }
    }
}

/// The updates that lead from a snapshot to others. They end with the snapshot.
#[derive(Debug, Default)]
pub(crate) struct OutgoingUpdates(Mutex<Ways>);

#[derive(Debug, Default)]
struct Ways {
    updates: VecDeque<(UpdateKey, Arc<Update>)>,
    /// By the id of the snapshot that was to be reached and the hash of the names to be kept. `None`: nothing is kept.
    kept: VecDeque<((u64, u128), Option<Weak<Snapshot>>)>,
}

/// Ways that are remembered of each kind: clients that hold one snapshot may want different names again.
const WAYS: usize = 16;

fn remember<K, V>(list: &mut VecDeque<(K, V)>, key: K, value: V) {
    if list.len() == WAYS {
        list.pop_front();
    }
    list.push_back((key, value));
}

impl OutgoingUpdates {
    /// The value that is found, or is made and kept. It is made without the lock: several callers that make it at once all get
    /// the one that was there first.
    fn find_or_make<T>(
        &self,
        find: impl Fn(&Ways) -> Option<T>,
        make: impl FnOnce() -> T,
        keep: impl FnOnce(&mut Ways, &T),
    ) -> T {
        if let Some(known) = find(&self.0.lock()) {
            return known;
        }
        let made = make();
        let mut ways = self.0.lock();
        if let Some(known) = find(&ways) {
            return known;
        }
        keep(&mut ways, &made);
        made
    }

    pub(super) fn update(&self, way: UpdateKey, make: impl FnOnce() -> Arc<Update>) -> Arc<Update> {
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
