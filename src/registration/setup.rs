//! The inputs of the actor, and the questions that it asks of the objects in force.

use std::sync::Arc;

use tokio::sync::watch;

use super::{ClusterEntries, MemoryEntries, SOURCE, cleanup::Gone, counts::Limits, entry::GROUP};
use crate::model::{Config, ConfigSnapshot, Features, Kind};

/// The inputs of the actor.
#[derive(Clone)]
pub struct Setup {
    /// The name of this process in entries; no other process may have it.
    pub me: Arc<str>,
    /// Feature flags of the process.
    pub features: Arc<Features>,
    /// The objects in force, and their changes.
    pub configs: watch::Receiver<Arc<ConfigSnapshot>>,
    /// Whether all sources have delivered: before that a group may seem to be missing.
    pub is_complete: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Entries that no cluster takes.
    pub memory: MemoryEntries,
    /// The cluster, where it may be written to.
    pub cluster: Option<ClusterEntries>,
    /// How many may register.
    pub limits: Limits,
    /// The number of the last publication: sources complete with one.
    pub publications: watch::Receiver<u64>,
    /// Other processes that have ended, as far as this one has to act on that.
    pub gone: watch::Receiver<Gone>,
}

impl Setup {
    /// The objects in force; `None` before all sources have delivered.
    pub(super) fn in_force(&self) -> Option<Arc<ConfigSnapshot>> {
        (self.is_complete)().then(|| self.configs.borrow().clone())
    }
}

/// Whether no input of the registrations has changed.
pub(super) fn same(seen: &ConfigSnapshot, now: &ConfigSnapshot) -> bool {
    [Kind::WorkloadEntry, Kind::WorkloadGroup].iter().all(|kind| {
        match (seen.by_kind.get(kind), now.by_kind.get(kind)) {
            (Some(seen), Some(now)) => Arc::ptr_eq(seen, now),
            (seen, now) => seen.is_none() && now.is_none(),
        }
    })
}

/// Whether an entry of our own source lost its group; in a cluster the garbage collector looks after that.
pub(super) fn is_orphaned(entry: &Config, configs: &ConfigSnapshot) -> bool {
    let Some(group) = entry.meta.annotations.get(GROUP).filter(|_| *entry.origin.source == *SOURCE) else {
        return false;
    };
    let mut groups = configs.list(Kind::WorkloadGroup).iter().filter(|c| c.is_of_main_cluster());
    !groups.any(|c| c.meta.namespace == entry.meta.namespace && *c.meta.name == **group)
}
