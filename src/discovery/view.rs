//! A view: the slots of a proxy, and the snapshots that proxies with the same slots share.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    build::{BuildError, Builder, SlotCache},
    generator::{Generator, Layout, Part, Pick},
    published::Published,
};
use crate::xds::{Block, PerType, ResourceType, Scope, Snapshot, TableEntry, TypeSet};

type SnapshotKey = (ResourceType, (bool, u128));

/// For each part of a view the last publication that may have changed a type in it.
///
/// A publication marks one part after another. One number for all of them would take a snapshot that was arranged in the
/// middle of that for one that holds the publication, though a part that was not marked yet is still the one before.
type Versions = [u64; Part::COUNT];

/// The place of the snapshot of one type and scope. The first caller that finds it out of date makes it anew; others wait for that one.
#[derive(Debug, Default)]
struct SnapshotCell {
    making: tokio::sync::Mutex<()>,
    /// The snapshot, and up to which publication each of its parts is known to be right.
    known: Mutex<(Versions, Weak<Snapshot>)>,
}

impl SnapshotCell {
    fn known(&self) -> Option<(Versions, Arc<Snapshot>)> {
        let known = self.known.lock();
        Some((known.0, known.1.upgrade()?))
    }

    fn at_least(&self, wanted: &Versions) -> Option<Arc<Snapshot>> {
        let reaches = |known: &Versions| known.iter().zip(wanted).all(|(known, wanted)| known >= wanted);
        self.known().filter(|(known, _)| reaches(known)).map(|(_, snapshot)| snapshot)
    }
}

/// The snapshots that proxies with equal slots share. Lives as long as one of them is connected.
#[derive(Debug)]
pub(super) struct View {
    pub(super) key: u128,
    pub(super) slot_caches: [Arc<SlotCache>; Part::COUNT],
    /// Types that may be asked for.
    pub(super) served: TypeSet,
    layouts: PerType<Option<Layout>>,
    snapshots: Mutex<HashMap<SnapshotKey, Arc<SnapshotCell>>>,
    tick: watch::Sender<u64>,
    _entry: TableEntry<Self>,
}

impl View {
    pub(super) fn new(
        key: u128,
        slot_caches: [Arc<SlotCache>; Part::COUNT],
        generator: &dyn Generator,
        entry: TableEntry<Self>,
    ) -> Self {
        let own_cache = &slot_caches[Part::Own.index()];
        let own = &own_cache.slot;
        let served = own_cache.served;
        let mut layouts = PerType::default();
        for kind in served.iter() {
            if let Some(place) = layouts.get_mut(kind) {
                *place = Some(generator.layout(own, kind));
            }
        }
        let tick = watch::channel(0).0;
        Self { key, slot_caches, served, layouts, snapshots: Mutex::default(), tick, _entry: entry }
    }

    fn layout(&self, kind: ResourceType) -> Layout {
        let none = Layout { parts: &[], listed: true };
        self.layouts.known(kind).copied().flatten().unwrap_or(none)
    }

    #[allow(clippy::indexing_slicing, reason = "the array has a place for each part")]
    pub(super) fn parts(&self, kind: ResourceType) -> impl Iterator<Item = &Arc<SlotCache>> {
        self.layout(kind).parts.iter().map(|part| &self.slot_caches[part.index()])
    }

    /// Wakes when a publication may have changed something.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.tick.subscribe()
    }

    /// Wakes the connections of the view.
    pub(super) fn wake(&self, version: u64) {
        self.tick.send_replace(version);
    }

    fn versions(&self, kind: ResourceType) -> Versions {
        let mut versions = Versions::default();
        for (version, slot_cache) in versions.iter_mut().zip(self.parts(kind)) {
            *version = slot_cache.dirty(kind);
        }
        versions
    }

    /// Version of the last publication that may have changed the type.
    pub(super) fn dirty(&self, kind: ResourceType) -> u64 {
        self.parts(kind).map(|slot_cache| slot_cache.dirty(kind)).max().unwrap_or_default()
    }

    /// Types that publications after `version` may have changed.
    pub(super) fn changed_since(&self, version: u64) -> TypeSet {
        self.served.iter().filter(|kind| self.dirty(*kind) > version).collect()
    }

    /// The number of connections.
    pub(super) fn connections(&self) -> usize {
        self.tick.receiver_count()
    }

    /// Whether something was built already or is being built for another connection, so that a new one costs next to nothing.
    pub(super) fn is_built(&self) -> bool {
        self.connections() > 0 || self.snapshots.lock().values().any(|place| place.known().is_some())
    }

    /// The snapshot for clients that ask for this scope.
    pub(super) async fn snapshot(
        &self,
        kind: ResourceType,
        scope: &Scope,
        builder: &Builder,
        current: &(impl Fn() -> Arc<Published> + Sync),
    ) -> Result<Arc<Snapshot>, BuildError> {
        let place = self.place((kind, scope.key()));
        if let Some(snapshot) = place.at_least(&self.versions(kind)) {
            return Ok(snapshot);
        }
        let _making = place.making.lock().await;
        let wanted = self.versions(kind);
        if let Some(snapshot) = place.at_least(&wanted) {
            return Ok(snapshot);
        }
        let before = place.known().map(|(_, snapshot)| snapshot);
        let blocks = self.blocks(kind, scope, before.as_deref(), builder, current).await?;
        let snapshot = builder.arrange(kind, scope, blocks);
        *place.known.lock() = (wanted, Arc::downgrade(&snapshot));
        Ok(snapshot)
    }

    fn place(&self, key: SnapshotKey) -> Arc<SnapshotCell> {
        let mut places = self.snapshots.lock();
        if places.len() == places.capacity() {
            places.retain(|_, place| Arc::strong_count(place) > 1 || place.known().is_some());
        }
        places.entry(key).or_default().clone()
    }

    async fn blocks(
        &self,
        kind: ResourceType,
        scope: &Scope,
        before: Option<&Snapshot>,
        builder: &Builder,
        current: &(impl Fn() -> Arc<Published> + Sync),
    ) -> Result<Vec<Arc<Block>>, BuildError> {
        let names = scope.names.names();
        let mut blocks = Vec::with_capacity(2);
        let pick = self.layout(kind).pick(scope);
        for (at, slot_cache) in self.parts(kind).enumerate() {
            let resources = match pick {
                Pick::Named => slot_cache.named(kind, names, builder, current).await?,
                Pick::Listed => {
                    blocks.push(slot_cache.list(kind, builder, current).await?);
                    continue;
                }
                Pick::NamedOfListed => {
                    let all = slot_cache.list(kind, builder, current).await?;
                    names.iter().filter_map(|name| all.get(name).cloned()).collect()
                }
                Pick::ListedAndNamed => {
                    let all = slot_cache.list(kind, builder, current).await?;
                    let others: Vec<_> = names.iter().filter(|name| all.get(name).is_none()).cloned().collect();
                    let others = slot_cache.named(kind, &others, builder, current).await?;
                    all.resources().iter().cloned().chain(others).collect()
                }
            };
            blocks.push(builder.block(resources, before.and_then(|s| s.blocks().get(at))));
        }
        Ok(blocks)
    }
}
