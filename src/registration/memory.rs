//! Entries outside of any cluster: kept in this process, and delivered as a source like any other.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    EntryKey, EntryStore, Keeping,
    entry::{CONNECTED_AT, CONTROLLER, DISCONNECTED_AT},
};
use crate::{
    model::{Config, ConfigKey, Kind, Origin, decode},
    sources::{Change, Source, SourceBatch, SourceId, SourcePort, SourceState, WriteError},
    store::{MemoryStore, Patch, StoreError, StoreKey, document},
};

/// Name of the source.
pub const SOURCE: &str = "registered";
/// Interval of the source's heartbeat.
const BEAT: Duration = Duration::from_secs(5);
/// Pause before a rejected batch is sent again.
const RETRY: Duration = Duration::from_secs(1);

/// The entries of proxies that are connected to this process, or were within the grace period. Cheap to clone.
#[derive(Debug, Clone)]
pub struct MemoryEntries {
    objects: Arc<Mutex<MemoryStore>>,
    changes: watch::Sender<u64>,
    keeping: Keeping,
}

impl Default for MemoryEntries {
    fn default() -> Self {
        Self { objects: Arc::default(), changes: watch::Sender::new(0), keeping: Keeping::default() }
    }
}

fn origin() -> Origin {
    Origin { source: SOURCE.into(), ..Origin::default() }
}

fn store_key(namespace: &str, name: &str) -> StoreKey {
    let key = ConfigKey { kind: Kind::WorkloadEntry, namespace: namespace.into(), name: name.into() };
    StoreKey { cluster: "".into(), key }
}

impl MemoryEntries {
    fn lock(&self) -> MutexGuard<'_, MemoryStore> {
        self.objects.lock()
    }

    fn changed(&self) {
        self.changes.send_modify(|number| *number += 1);
    }

    /// All entries, by key.
    #[must_use]
    pub fn content(&self) -> Vec<Arc<Config>> {
        self.lock().iter().cloned().collect()
    }

    /// Notifies of every change, by its number.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Requests for writes to disk, and their results.
    #[must_use]
    pub const fn keeping(&self) -> &Keeping {
        &self.keeping
    }

    /// Waits until the current content is on disk, if it is kept on one; returns whether it is.
    pub(super) async fn until_kept(&self) -> bool {
        let change = *self.changes.borrow();
        self.keeping.until_written(change).await
    }

    /// Whether the entry is stored here.
    #[must_use]
    pub fn holds(&self, key: &EntryKey) -> bool {
        self.lock().get(&store_key(&key.namespace, &key.name)).is_some()
    }

    /// Restores entries of an earlier process, which belong to this one (`me`) from now on. No proxy is connected yet, and
    /// each has the grace period to come back. Returns the number of entries.
    pub fn restore(&self, configs: &[Arc<Config>], me: &str, now: Timestamp) -> usize {
        let mut taken = 0;
        for config in configs.iter().filter(|c| c.kind() == Kind::WorkloadEntry) {
            let mut config = (**config).clone();
            config.meta.annotations.remove(CONNECTED_AT);
            config.meta.annotations.insert(DISCONNECTED_AT.to_string(), now.to_string());
            config.meta.annotations.insert(CONTROLLER.to_string(), me.to_string());
            let restored = document(&config).ok().and_then(|d| decode::from_value(&d, origin()).ok());
            taken += usize::from(restored.is_some_and(|c| self.lock().create(c).is_ok()));
        }
        self.changed();
        taken
    }

    fn create_now(&self, mut entry: Value) -> Result<Value, WriteError> {
        entry["metadata"]["creationTimestamp"] = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
        let config = decode::from_value(&entry, origin()).map_err(|e| WriteError::Other(e.to_string()))?;
        let written = self.lock().create(config).map_err(refused)?;
        self.changed();
        as_document(&written)
    }

    fn patch_now(&self, stored: &Value, patch: Value) -> Result<Value, WriteError> {
        let key = key_of(stored);
        let mut objects = self.lock();
        check_version(&objects, &key, stored)?;
        let written = objects.patch(&key, &Patch::merge(patch)).map_err(refused)?;
        drop(objects);
        self.changed();
        as_document(&written)
    }

    fn delete_now(&self, stored: &Value) -> Result<(), WriteError> {
        let version = stored["metadata"]["resourceVersion"].as_str();
        self.lock().delete(&key_of(stored), version).map_err(refused)?;
        self.changed();
        Ok(())
    }
}

fn key_of(stored: &Value) -> StoreKey {
    let text = |name: &str| stored["metadata"][name].as_str().unwrap_or_default();
    store_key(text("namespace"), text("name"))
}

fn check_version(objects: &MemoryStore, key: &StoreKey, stored: &Value) -> Result<(), WriteError> {
    let held = objects.get(key).ok_or(WriteError::Gone)?;
    let same = stored["metadata"]["resourceVersion"].as_str() == Some(&*held.meta.resource_version);
    same.then_some(()).ok_or(WriteError::Conflict)
}

#[allow(clippy::needless_pass_by_value, reason = "the form of map_err")]
fn refused(error: StoreError) -> WriteError {
    match error {
        StoreError::AlreadyExists(_) | StoreError::Conflict { .. } => WriteError::Conflict,
        StoreError::NotFound(_) => WriteError::Gone,
        other => WriteError::Other(other.to_string()),
    }
}

fn as_document(config: &Config) -> Result<Value, WriteError> {
    document(config).map_err(|e| WriteError::Other(e.to_string()))
}

impl EntryStore for MemoryEntries {
    fn get(&self, key: &EntryKey) -> BoxFuture<'static, Result<Option<Value>, WriteError>> {
        let found = self.lock().get(&store_key(&key.namespace, &key.name)).cloned();
        async move { found.map(|config| as_document(&config)).transpose() }.boxed()
    }

    fn create(&self, document: Value) -> BoxFuture<'static, Result<Value, WriteError>> {
        let written = self.create_now(document);
        async move { written }.boxed()
    }

    fn annotate(&self, stored: &Value, annotations: Value) -> BoxFuture<'static, Result<Value, WriteError>> {
        let written = self.patch_now(stored, json!({"metadata": {"annotations": annotations}}));
        async move { written }.boxed()
    }

    fn set_status(&self, stored: &Value, status: Value) -> BoxFuture<'static, Result<Value, WriteError>> {
        let written = self.patch_now(stored, json!({ "status": status }));
        async move { written }.boxed()
    }

    fn delete(&self, stored: &Value) -> BoxFuture<'static, Result<(), WriteError>> {
        let done = self.delete_now(stored);
        async move { done }.boxed()
    }
}

impl Source for MemoryEntries {
    fn id(&self) -> SourceId {
        SOURCE.into()
    }

    fn run(&self, port: SourcePort) -> BoxFuture<'static, anyhow::Result<()>> {
        run(self.clone(), port).boxed()
    }
}

async fn run(entries: MemoryEntries, port: SourcePort) -> anyhow::Result<()> {
    let mut changes = entries.follow();
    let mut told: Option<Vec<Arc<Config>>> = None;
    loop {
        changes.borrow_and_update();
        let now = entries.content();
        let change = match &told {
            None => Change::Full(now.clone()),
            Some(before) => difference(before, &now),
        };
        if !change.is_empty() {
            told = match port.sink.apply(SourceBatch { source: SOURCE.into(), change }).await {
                Ok(_) => Some(now.clone()),
                Err(_) => None,
            };
        }
        let delivered = told.is_some();
        port.board.write(|report| {
            if delivered {
                report.state = SourceState::Synced;
            }
            report.objects = now.len();
        });
        port.board.beat();
        tokio::select! {
            () = port.stop.cancelled() => return Ok(()),
            () = port.resync.notified() => told = None,
            changed = changes.changed(), if delivered => changed?,
            () = tokio::time::sleep(if delivered { BEAT } else { RETRY }) => {}
        }
    }
}

/// Both lists are in the order of their keys.
fn difference(before: &[Arc<Config>], now: &[Arc<Config>]) -> Change {
    let find = |list: &[Arc<Config>], config: &Config| {
        list.binary_search_by(|c| (&c.meta.namespace, &c.meta.name).cmp(&(&config.meta.namespace, &config.meta.name)))
    };
    let same = |config: &&Arc<Config>| match find(before, config) {
        Ok(at) => before.get(at).is_some_and(|old| Arc::ptr_eq(old, config)),
        Err(_) => false,
    };
    let upserts = now.iter().filter(|c| !same(c)).cloned().collect();
    let deletes = before.iter().filter(|c| find(now, c).is_err()).map(|c| c.key()).collect();
    Change::Delta { upserts, deletes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Value {
        json!({"apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry", "spec": {"address": "10.0.0.1"},
            "metadata": {"name": name, "namespace": "shop", "annotations": {CONNECTED_AT: "2026-01-01T00:00:00Z"}}})
    }

    #[tokio::test]
    async fn writes_need_the_entry_as_it_is() {
        let entries = MemoryEntries::default();
        let first = entries.create(entry("a")).await.unwrap();
        assert_eq!(entries.create(entry("a")).await, Err(WriteError::Conflict));
        let second = entries.annotate(&first, json!({CONNECTED_AT: null, "x": "y"})).await.unwrap();
        assert_eq!(second["metadata"]["annotations"], json!({"x": "y"}));
        assert_eq!(entries.set_status(&first, json!({})).await, Err(WriteError::Conflict));
        assert_eq!(entries.delete(&first).await, Err(WriteError::Conflict));
        let third = entries.set_status(&second, json!({"conditions": []})).await.unwrap();
        assert_eq!(third["metadata"]["creationTimestamp"], first["metadata"]["creationTimestamp"]);
        entries.delete(&third).await.unwrap();
        assert_eq!(entries.delete(&third).await, Err(WriteError::Gone));
        assert!(entries.content().is_empty());
    }

    #[tokio::test]
    async fn restored_entries_are_disconnected() {
        let entries = MemoryEntries::default();
        entries.create(entry("a")).await.unwrap();
        let again = MemoryEntries::default();
        assert_eq!(again.restore(&entries.content(), "me", Timestamp::UNIX_EPOCH), 1);
        let annotations = again.content()[0].meta.annotations.clone();
        assert_eq!(
            annotations.into_iter().collect::<Vec<_>>(),
            [
                (DISCONNECTED_AT.to_string(), "1970-01-01T00:00:00Z".to_string()),
                (CONTROLLER.to_string(), "me".to_string())
            ]
        );
    }
}
