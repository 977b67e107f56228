//! Where resources are generated: off the async threads, as many at once as there are cores, one build per slot and type,
//! and nothing twice that could not have changed.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    build_queue::{BuildQueue, Rank},
    generator::{Generator, Slot},
    history::Building,
    published::Published,
};
use crate::{
    runtime::catch,
    xds::{Block, PerType, Resource, ResourceType, Scope, SharedTables, Snapshot, TableEntry, TypeSet},
};

/// There is no snapshot: the generator failed and nothing earlier stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the resources could not be generated")]
pub struct BuildError;

/// A type of a slot whose generator failed while earlier resources stand in.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) slot_cache: Weak<SlotCache>,
    pub(super) kind: ResourceType,
}

/// Runs the generator and shares equal resources between slots.
#[derive(Debug)]
pub(super) struct Builder {
    pub(super) generator: Arc<dyn Generator>,
    queue: BuildQueue,
    shared: SharedTables,
    /// Builds so far, for `/metrics` and tests.
    pub(super) builds: AtomicU64,
    /// Lists and resources that were there already when they were asked for, and those that were not.
    pub(super) reads: (AtomicU64, AtomicU64),
    failures: Mutex<Vec<Failure>>,
    failed: Notify,
    #[cfg(any(test, feature = "testing"))]
    faults: crate::runtime::Faults,
}

impl Builder {
    pub(super) fn new(generator: Arc<dyn Generator>, threads: usize) -> Self {
        Self {
            generator,
            queue: BuildQueue::new(threads),
            shared: SharedTables::default(),
            builds: AtomicU64::new(0),
            reads: Default::default(),
            failures: Mutex::default(),
            failed: Notify::new(),
            #[cfg(any(test, feature = "testing"))]
            faults: crate::runtime::Faults::from_env(),
        }
    }

    /// Faults to inject into generators and streams.
    #[cfg(any(test, feature = "testing"))]
    pub(super) const fn faults(&self) -> &crate::runtime::Faults {
        &self.faults
    }

    /// Resources that are alive, or were until a moment ago.
    pub(super) fn resources(&self) -> usize {
        self.shared.resources()
    }

    /// The resources of the snapshots that are held, by type.
    pub(super) fn cached(&self) -> Vec<(ResourceType, Arc<Resource>)> {
        self.shared.held()
    }

    /// A block of these resources; views with equal content share it.
    pub(super) fn block(&self, resources: Vec<Arc<Resource>>, before: Option<&Arc<Block>>) -> Arc<Block> {
        self.shared.block(Block::build(resources, before))
    }

    /// The snapshot of these blocks; views with equal content share it.
    pub(super) fn arrange(&self, kind: ResourceType, scope: &Scope, blocks: Vec<Arc<Block>>) -> Arc<Snapshot> {
        self.shared.snapshot(kind, scope, blocks)
    }

    /// Notes that earlier resources stand in for those that could not be made.
    fn stands_in(&self, slot_cache: &Arc<SlotCache>, kind: ResourceType) {
        let mut failures = self.failures.lock();
        let slot_cache = Arc::downgrade(slot_cache);
        if !failures.iter().any(|known| known.kind == kind && known.slot_cache.ptr_eq(&slot_cache)) {
            failures.push(Failure { slot_cache, kind });
        }
        drop(failures);
        self.failed.notify_one();
    }

    /// Waits until earlier resources stand in somewhere.
    pub(super) async fn failed(&self) {
        self.failed.notified().await;
    }

    /// Takes the failures that nothing was done about.
    pub(super) fn take_failures(&self) -> Vec<Failure> {
        std::mem::take(&mut *self.failures.lock())
    }

    async fn run(
        &self,
        kind: ResourceType,
        slot: &Slot,
        rank: Rank,
        mut building: Building,
        make: impl FnOnce(&dyn Generator) -> Vec<Arc<Resource>> + Send + 'static,
    ) -> Result<Vec<Arc<Resource>>, BuildError> {
        let _permit = self.queue.take(rank).await.ok_or(BuildError)?;
        let generator = self.generator.clone();
        #[cfg(any(test, feature = "testing"))]
        let make = {
            let (faults, name) = (self.faults.clone(), format!("generator for {}", slot.view.namespace));
            move |generator: &dyn Generator| {
                // On a thread of the pool, as generators do it.
                rayon::scope(|_| faults.trip(&name));
                make(generator)
            }
        };
        let start = Instant::now();
        building.begins();
        let made = tokio::task::spawn_blocking(move || catch(|| make(&*generator))).await;
        drop(building);
        self.builds.fetch_add(1, Ordering::Relaxed);
        metrics::histogram!("pilot_xds_push_time", "type" => kind.label()).record(start.elapsed().as_secs_f64());
        let error = match made {
            Ok(Ok(resources)) => return Ok(self.shared.all(resources)),
            Ok(Err(panicked)) => panicked.to_string(),
            Err(error) => error.to_string(),
        };
        metrics::counter!("pilot_total_xds_internal_errors").increment(1);
        let namespace = &*slot.view.namespace;
        tracing::error!(
            r#type = kind.short(),
            namespace,
            error,
            "the generator failed; the resources that were sent before stay in force"
        );
        Err(BuildError)
    }
}

/// The cached resources of one type of one slot.
#[derive(Debug, Default)]
struct TypeCache {
    /// Version of the last publication that may have changed the type.
    dirty: AtomicU64,
    list: Mutex<Option<(u64, Arc<Block>)>>,
    named: Mutex<NamedCache>,
    building: tokio::sync::Mutex<()>,
}

/// Names that nothing is made for are forgotten when there are more of one type and slot.
const MOST_ABSENT: usize = 10_000;

#[derive(Debug, Default)]
struct NamedCache {
    known: HashMap<Arc<str>, NamedEntry>,
    /// Names that nothing is made for, as of now.
    absent: HashSet<Arc<str>>,
    prune_at: usize,
}

#[derive(Debug)]
struct NamedEntry {
    fresh: bool,
    resource: Weak<Resource>,
}

/// A slot with the resources that were generated for it.
#[derive(Debug)]
pub(super) struct SlotCache {
    /// Which one it is, in the order of creation.
    number: u64,
    pub(super) slot: Slot,
    /// Types that the slot may be asked for.
    pub(super) served: TypeSet,
    types: PerType<TypeCache>,
    _entry: TableEntry<Self>,
}

impl SlotCache {
    pub(super) fn new(slot: Slot, served: TypeSet, entry: TableEntry<Self>) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self { number: LAST.fetch_add(1, Ordering::Relaxed), slot, served, types: PerType::default(), _entry: entry }
    }

    fn cache(&self, kind: ResourceType) -> &TypeCache {
        self.types.get(kind)
    }

    /// Version of the last publication that may have changed the type.
    pub(super) fn dirty(&self, kind: ResourceType) -> u64 {
        self.types.known(kind).map_or(0, |cache| cache.dirty.load(Ordering::Acquire))
    }

    /// Says that a publication may have changed the type: the resources of the names that are given by themselves.
    pub(super) fn invalidate(&self, kind: ResourceType, version: u64, names: impl Fn(ResourceType, &str) -> bool) {
        let cache = self.cache(kind);
        let mut named = cache.named.lock();
        let mut evicted = u64::from(cache.list.lock().is_some());
        for (name, entry) in &mut named.known {
            let stays = !names(kind, name);
            evicted += u64::from(entry.fresh && !stays);
            entry.fresh &= stays;
        }
        metrics::counter!("xds_cache_evictions", "type" => "clear").increment(evicted);
        named.absent.retain(|name| !names(kind, name));
        cache.dirty.store(version, Ordering::Release);
    }

    /// All resources of a type.
    pub(super) async fn list(
        self: &Arc<Self>,
        kind: ResourceType,
        builder: &Builder,
        current: impl Fn() -> Arc<Published>,
    ) -> Result<Arc<Block>, BuildError> {
        let cache = self.cache(kind);
        let ready = |known: &Option<(u64, Arc<Block>)>| {
            known.as_ref().filter(|(built, _)| *built >= self.dirty(kind)).map(|(_, block)| block.clone())
        };
        if let Some(block) = ready(&cache.list.lock()) {
            builder.reads.0.fetch_add(1, Ordering::Relaxed);
            return Ok(block);
        }
        let _building = cache.building.lock().await;
        if let Some(block) = ready(&cache.list.lock()) {
            builder.reads.0.fetch_add(1, Ordering::Relaxed);
            return Ok(block);
        }
        builder.reads.1.fetch_add(1, Ordering::Relaxed);
        let published = current();
        let version = published.version;
        let slot_cache = self.clone();
        let rank = Rank { first: cache.list.lock().is_none(), number: self.number };
        let building = published.record.build(kind);
        let make = move |g: &dyn Generator| g.list(&published.context, &slot_cache.slot, kind);
        let made = builder.run(kind, &self.slot, rank, building, make).await;
        let mut known = cache.list.lock();
        let before = known.as_ref().map(|(_, block)| block);
        let block = match made {
            Ok(resources) => builder.block(resources, before),
            Err(error) => {
                let before = before.cloned().ok_or(error)?;
                builder.stands_in(self, kind);
                before
            }
        };
        *known = Some((version, block.clone()));
        Ok(block)
    }

    /// The resources of these names, as far as they exist.
    pub(super) async fn named(
        self: &Arc<Self>,
        kind: ResourceType,
        names: &[Arc<str>],
        builder: &Builder,
        current: impl Fn() -> Arc<Published>,
    ) -> Result<Vec<Arc<Resource>>, BuildError> {
        let cache = self.cache(kind);
        let _building = cache.building.lock().await;
        let (mut found, missing) = cache.named.lock().split(names);
        builder.reads.0.fetch_add((names.len() - missing.len()) as u64, Ordering::Relaxed);
        builder.reads.1.fetch_add(missing.len() as u64, Ordering::Relaxed);
        if missing.is_empty() {
            return Ok(found);
        }
        let published = current();
        let version = published.version;
        let (slot_cache, asked) = (self.clone(), missing.clone());
        let rank = Rank { first: cache.named.lock().known.is_empty(), number: self.number };
        let building = published.record.build(kind);
        let make = move |g: &dyn Generator| g.named(&published.context, &slot_cache.slot, kind, &asked);
        let made = builder.run(kind, &self.slot, rank, building, make).await;
        let mut known = cache.named.lock();
        match made {
            Ok(resources) => {
                known.keep(&resources, &missing, version >= self.dirty(kind));
                found.extend(resources);
            }
            Err(error) => {
                let before: Vec<_> = missing.iter().filter_map(|n| known.known.get(n)?.resource.upgrade()).collect();
                if before.is_empty() && found.is_empty() {
                    return Err(error);
                }
                builder.stands_in(self, kind);
                found.extend(before);
            }
        }
        Ok(found)
    }
}

impl NamedCache {
    fn split(&self, names: &[Arc<str>]) -> (Vec<Arc<Resource>>, Vec<Arc<str>>) {
        let (mut found, mut missing) = (Vec::with_capacity(names.len()), Vec::new());
        for name in names {
            match self.known.get(name).filter(|entry| entry.fresh).and_then(|entry| entry.resource.upgrade()) {
                Some(resource) => found.push(resource),
                None if self.absent.contains(name) => {}
                None => missing.push(name.clone()),
            }
        }
        (found, missing)
    }

    /// `fresh` is false when a publication came while the resources were made.
    fn keep(&mut self, resources: &[Arc<Resource>], asked: &[Arc<str>], fresh: bool) {
        if self.absent.len() > MOST_ABSENT {
            self.absent.clear();
        }
        if fresh && resources.len() < asked.len() {
            let made: HashSet<&str> = resources.iter().map(|r| &**r.name()).collect();
            self.absent.extend(asked.iter().filter(|name| !made.contains(&***name)).cloned());
        }
        for resource in resources {
            let entry = NamedEntry { fresh, resource: Arc::downgrade(resource) };
            self.known.insert(resource.name().clone(), entry);
        }
        if self.known.len() > self.prune_at {
            self.known.retain(|_, entry| entry.resource.strong_count() > 0);
            self.prune_at = (self.known.len() * 2).max(256);
        }
    }
}
