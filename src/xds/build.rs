//! Where resources are generated: off the async threads, as many at once as there are cores, one build per slot and type,
//! and nothing twice that could not have changed.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use tokio::sync::Semaphore;

use super::{
    Block, PerType, Resource, ResourceType, Scope, Snapshot, TypeSet,
    generator::{Generator, Slot},
    shared::Shared,
    state::Published,
};

/// There is no snapshot: the generator failed and nothing earlier stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the resources could not be generated")]
pub struct BuildError;

/// Runs the generator and shares equal resources between slots.
#[derive(Debug)]
pub(super) struct Builder {
    pub(super) generator: Arc<dyn Generator>,
    permits: Semaphore,
    shared: Shared,
    /// Builds so far, for `/metrics` and tests.
    pub(super) builds: AtomicU64,
}

impl Builder {
    pub(super) fn new(generator: Arc<dyn Generator>, threads: usize) -> Self {
        Self {
            generator,
            permits: Semaphore::new(threads.max(1)),
            shared: Shared::default(),
            builds: AtomicU64::new(0),
        }
    }

    /// Resources that are alive, or were until a moment ago.
    pub(super) fn resources(&self) -> usize {
        self.shared.resources()
    }

    /// A block of these resources; views with equal content share it.
    pub(super) fn block(&self, resources: Vec<Arc<Resource>>, before: Option<&Arc<Block>>) -> Arc<Block> {
        self.shared.block(Block::build(resources, before))
    }

    /// The snapshot of these blocks; views with equal content share it.
    pub(super) fn arrange(&self, kind: ResourceType, scope: &Scope, blocks: Vec<Arc<Block>>) -> Arc<Snapshot> {
        self.shared.snapshot(kind, scope, blocks)
    }

    async fn run(
        &self,
        kind: ResourceType,
        make: impl FnOnce(&dyn Generator) -> Vec<Arc<Resource>> + Send + 'static,
    ) -> Result<Vec<Arc<Resource>>, BuildError> {
        let _permit = self.permits.acquire().await.map_err(|_| BuildError)?;
        let generator = self.generator.clone();
        let start = Instant::now();
        let made = tokio::task::spawn_blocking(move || make(&*generator)).await;
        self.builds.fetch_add(1, Ordering::Relaxed);
        metrics::histogram!("pilot_xds_push_time", "type" => kind.label()).record(start.elapsed().as_secs_f64());
        match made {
            Ok(resources) => Ok(self.shared.all(resources)),
            Err(error) => {
                metrics::counter!("pilot_total_xds_internal_errors").increment(1);
                tracing::error!(r#type = kind.short(), %error, "the generator failed; what was sent before stays in force");
                Err(BuildError)
            }
        }
    }
}

/// What is cached of one type of one slot.
#[derive(Debug, Default)]
struct TypeCache {
    /// Version of the last publication that may have changed the type.
    dirty: AtomicU64,
    list: Mutex<Option<(u64, Arc<Block>)>>,
    named: Mutex<Named>,
    building: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Named {
    known: HashMap<Arc<str>, NamedEntry>,
    prune_at: usize,
}

#[derive(Debug)]
struct NamedEntry {
    fresh: bool,
    resource: Weak<Resource>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A slot with what was generated for it.
#[derive(Debug)]
pub(super) struct Half {
    pub(super) slot: Slot,
    /// Types that the slot may be asked for.
    pub(super) served: TypeSet,
    types: PerType<TypeCache>,
}

impl Half {
    pub(super) fn new(slot: Slot, served: TypeSet) -> Self {
        Self { slot, served, types: PerType::default() }
    }

    fn cache(&self, kind: ResourceType) -> &TypeCache {
        self.types.get(kind)
    }

    /// Version of the last publication that may have changed the type.
    pub(super) fn dirty(&self, kind: ResourceType) -> u64 {
        self.types.known(kind).map_or(0, |cache| cache.dirty.load(Ordering::Acquire))
    }

    /// Says that a publication may have changed the type: the resources of the names that are given by themselves.
    pub(super) fn soil(&self, kind: ResourceType, version: u64, names: impl Fn(ResourceType, &str) -> bool) {
        let cache = self.cache(kind);
        let mut named = locked(&cache.named);
        for (name, entry) in &mut named.known {
            entry.fresh &= !names(kind, name);
        }
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
        if let Some(block) = ready(&locked(&cache.list)) {
            return Ok(block);
        }
        let _building = cache.building.lock().await;
        if let Some(block) = ready(&locked(&cache.list)) {
            return Ok(block);
        }
        let published = current();
        let version = published.version;
        let half = self.clone();
        let made = builder.run(kind, move |g| g.list(&published.context, &half.slot, kind)).await;
        let mut known = locked(&cache.list);
        let before = known.as_ref().map(|(_, block)| block);
        let block = match made {
            Ok(resources) => builder.block(resources, before),
            Err(error) => before.cloned().ok_or(error)?,
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
        let (mut found, missing) = locked(&cache.named).split(names);
        if missing.is_empty() {
            return Ok(found);
        }
        let published = current();
        let version = published.version;
        let (half, asked) = (self.clone(), missing.clone());
        let made = builder.run(kind, move |g| g.named(&published.context, &half.slot, kind, &asked)).await;
        let mut known = locked(&cache.named);
        match made {
            Ok(resources) => {
                known.keep(&resources, version >= self.dirty(kind));
                found.extend(resources);
            }
            Err(error) => {
                let before: Vec<_> = missing.iter().filter_map(|n| known.known.get(n)?.resource.upgrade()).collect();
                if before.is_empty() && found.is_empty() {
                    return Err(error);
                }
                found.extend(before);
            }
        }
        Ok(found)
    }
}

impl Named {
    fn split(&self, names: &[Arc<str>]) -> (Vec<Arc<Resource>>, Vec<Arc<str>>) {
        let (mut found, mut missing) = (Vec::with_capacity(names.len()), Vec::new());
        for name in names {
            match self.known.get(name).filter(|entry| entry.fresh).and_then(|entry| entry.resource.upgrade()) {
                Some(resource) => found.push(resource),
                None => missing.push(name.clone()),
            }
        }
        (found, missing)
    }

    /// `fresh` is false when a publication came while the resources were made.
    fn keep(&mut self, resources: &[Arc<Resource>], fresh: bool) {
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
