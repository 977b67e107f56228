//! The inputs of the actor, and the questions that it asks of the objects in force.

use std::sync::Arc;

use tokio::sync::watch;

use super::{ClusterEntries, EntryKey, EntryStore, MemoryEntries, SOURCE, cleanup::Gone, counts::Limits, entry::GROUP};
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

    /// A group of the entry's namespace.
    pub(super) fn group(&self, key: &EntryKey, name: &str) -> Option<Arc<Config>> {
        let snapshot = self.in_force()?;
        let groups = snapshot.list(Kind::WorkloadGroup).iter().filter(|c| c.is_of_main_cluster());
        groups.into_iter().find(|c| *c.meta.namespace == *key.namespace && *c.meta.name == *name).cloned()
    }

    /// Where an entry stands: where its group does, if that is a cluster that we write to.
    pub(super) fn store(&self, key: &EntryKey, group: Option<&Config>) -> Arc<dyn EntryStore> {
        let cluster = self.cluster.clone().filter(|_| !self.memory.holds(key));
        match (cluster, group) {
            (Some(cluster), Some(group)) if group.origin.source.starts_with("kube:") => Arc::new(cluster),
            (Some(cluster), None) => Arc::new(cluster),
            _ => Arc::new(self.memory.clone()),
        }
    }

    /// Whether an entry is in force that no process can write: one of a file, or of another control plane.
    pub(super) fn is_elsewhere(&self, key: &EntryKey) -> bool {
        let Some(snapshot) = self.in_force() else { return false };
        let mut entries = snapshot.list(Kind::WorkloadEntry).iter().filter(|c| c.is_of_main_cluster());
        let found = entries.find(|c| *c.meta.namespace == *key.namespace && *c.meta.name == *key.name);
        let in_cluster = |source: &str| source.starts_with("kube:") && self.cluster.is_some();
        found.is_some_and(|c| !in_cluster(&c.origin.source) && *c.origin.source != *SOURCE)
    }

    /// Whether an entry of our own source lost its group.
    pub(super) fn is_orphaned_in_memory(&self, key: &EntryKey) -> bool {
        let Some(snapshot) = self.in_force() else { return false };
        let of_key = |c: &&Arc<Config>| *c.meta.namespace == *key.namespace && *c.meta.name == *key.name;
        self.memory.content().iter().find(of_key).is_some_and(|entry| is_orphaned(entry, &snapshot))
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
