//! Keeps the files up to date, and puts old content in force where a source does not deliver. Sources that deliver ask it for the
//! last good version of objects that they refuse.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::{Mutex as FileLock, Notify},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{folder::Folder, format::Saved};
use crate::{
    model::{Config, Interrupted},
    sources::{Applied, Change, ConfigSink, SourceBatch, SourceBoard, SourceId, SourceState},
    store::StoreHandle,
};

/// Least time between two writes.
const BETWEEN_WRITES: Duration = Duration::from_secs(10);

/// Sits between the sources and the store: passes batches on and notes the sources to save.
#[derive(Debug)]
pub struct Keeper {
    folder: Folder,
    store: StoreHandle,
    quiet: Duration,
    runtime: Handle,
    /// Sources to save.
    changed: Mutex<BTreeSet<SourceId>>,
    /// Sources with a batch between them and the reply of the store.
    sending: Mutex<BTreeSet<SourceId>>,
    /// Sources whose last save failed.
    unsaved: Mutex<BTreeSet<SourceId>>,
    /// Held while files are written and removed, so that a write that is under way leaves no file of a removed source.
    files: FileLock<()>,
    wake: Notify,
    delivery: Notify,
    /// Old content that is in force because its source has not delivered.
    old: Mutex<BTreeMap<SourceId, Arc<Saved>>>,
    /// Old content of sources that have delivered without answering for every kind.
    rest: Mutex<BTreeMap<SourceId, Arc<Saved>>>,
    boards: Mutex<Vec<Arc<SourceBoard>>>,
}

impl Keeper {
    /// A keeper between sources and the store. `quiet` is the time that changes are gathered for.
    #[must_use]
    pub fn new(folder: Folder, store: StoreHandle, quiet: Duration) -> Arc<Self> {
        Arc::new(Self {
            folder,
            store,
            quiet,
            runtime: Handle::current(),
            changed: Mutex::default(),
            sending: Mutex::default(),
            unsaved: Mutex::default(),
            files: FileLock::default(),
            wake: Notify::new(),
            delivery: Notify::new(),
            old: Mutex::default(),
            rest: Mutex::default(),
            boards: Mutex::default(),
        })
    }

    /// Adds boards of sources to those that it watches.
    pub fn watch(&self, boards: Vec<Arc<SourceBoard>>) {
        self.boards.lock().extend(boards);
    }

    /// Forgets a source that is removed for good, with its file. A write that is under way ends first.
    pub async fn forget(&self, source: &SourceId) {
        let _held = self.files.lock().await;
        self.boards.lock().retain(|board| board.read().source != *source);
        self.old.lock().remove(source);
        self.rest.lock().remove(source);
        self.changed.lock().remove(source);
        self.unsaved.lock().remove(source);
        let (folder, source) = (self.folder.clone(), source.clone());
        // It fails only by a panic, which has been logged.
        let _ = tokio::task::spawn_blocking(move || folder.remove(&source)).await;
    }

    /// Sources with a saved file.
    #[must_use]
    pub fn saved_sources(&self) -> Vec<String> {
        self.folder.sources()
    }

    fn boards(&self) -> Vec<Arc<SourceBoard>> {
        self.boards.lock().clone()
    }

    /// The sink for sources.
    #[must_use]
    pub fn sink(self: &Arc<Self>) -> Arc<dyn ConfigSink> {
        Arc::new(Passage(self.clone()))
    }

    /// Writes changed sources until `stop`; then those still unsaved.
    pub async fn keep(self: Arc<Self>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.wake.notified() => {}
            }
            if timeout(self.quiet, stop.cancelled()).await.is_ok() {
                break;
            }
            self.write().await;
            if timeout(BETWEEN_WRITES, stop.cancelled()).await.is_ok() {
                break;
            }
        }
        // The store may have taken batches whose replies no source awaits any more.
        let sending = self.sending.lock().clone();
        self.changed.lock().extend(sending);
        self.write().await;
    }

    async fn write(&self) {
        let _held = self.files.lock().await;
        let changed = std::mem::take(&mut *self.changed.lock());
        let mut again = BTreeSet::new();
        for source in changed {
            let Some(configs) = self.store.content(&source).await else {
                self.unsaved.lock().remove(&source);
                continue;
            };
            let (folder, name) = (self.folder.clone(), source.clone());
            let saved = tokio::task::spawn_blocking(move || folder.save(&name, &configs)).await;
            let failed = match saved {
                Ok(Ok(())) => {
                    self.unsaved.lock().remove(&source);
                    continue;
                }
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            metrics::counter!("pilothouse_last_good_write_failures").increment(1);
            if self.unsaved.lock().insert(source.clone()) {
                tracing::warn!(source = &*source, error = failed, "the last good content is not saved (--state-dir)");
            }
            again.insert(source);
        }
        if !again.is_empty() {
            // The next round tries again, without waiting for a change.
            self.changed.lock().extend(again);
            self.wake.notify_one();
        }
    }

    /// Waits until every source that it knows now has delivered, for `grace` at most, and puts the old content of the others
    /// in force.
    pub async fn stand_in(self: Arc<Self>, grace: Duration) {
        let boards = self.boards();
        let all = async {
            loop {
                let mut delivery = std::pin::pin!(self.delivery.notified());
                delivery.as_mut().enable();
                if self.store.undelivered().await.is_empty() {
                    return;
                }
                delivery.await;
            }
        };
        if timeout(grace, all).await.is_ok() {
            return;
        }
        for board in boards {
            self.stand_in_for(&board).await;
        }
    }

    /// Gives a source that was added later `grace` to deliver, and then puts its old content in force.
    pub async fn stand_in_later(self: Arc<Self>, board: Arc<SourceBoard>, grace: Duration) {
        if timeout(grace, board.until(|r| r.state != SourceState::Starting)).await.is_err() {
            self.stand_in_for(&board).await;
        }
    }

    async fn stand_in_for(&self, board: &SourceBoard) {
        let report = board.read();
        if self.store.undelivered().await.contains(&report.source) {
            let (folder, name) = (self.folder.clone(), report.source.clone());
            match tokio::task::spawn_blocking(move || folder.load(&name)).await {
                Ok(Ok(Some(saved))) => self.put_in_force(board, Arc::new(saved)).await,
                Ok(Ok(None)) => {
                    tracing::warn!(source = &*report.source, "source does not deliver, and no content of it was saved")
                }
                Ok(Err(error)) => {
                    tracing::error!(source = &*report.source, %error, "saved content refused");
                    board.write(|r| r.saved_content_refused = error.to_string());
                }
                Err(error) => tracing::error!(source = &*report.source, %error, "saved content not read"),
            }
        }
    }

    async fn put_in_force(&self, board: &SourceBoard, saved: Arc<Saved>) {
        let source: SourceId = saved.source.as_str().into();
        self.old.lock().insert(source.clone(), saved.clone());
        if !self.seed(&source, &saved).await {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let (age, objects) = (now.saturating_sub(saved.saved_at), saved.configs.len());
        tracing::warn!(
            source = &*source,
            age_seconds = age,
            objects,
            "source does not deliver; its saved content is served"
        );
        board.write(|report| {
            // It may have delivered in this moment.
            if matches!(report.state, SourceState::Starting | SourceState::Stale) {
                report.state = SourceState::Stale;
                report.objects = objects;
                report.saved_at = Some(saved.saved_at);
            }
        });
        if !self.old.lock().contains_key(&source) {
            board.write(|report| report.saved_at = None);
        }
    }

    /// Seeds the store with saved content; true when the store took it, because the source has not delivered since.
    async fn seed(&self, source: &SourceId, saved: &Saved) -> bool {
        let taken = self.store.seed(source.clone(), saved.configs.clone()).await;
        if !taken {
            self.old.lock().remove(source);
        }
        taken
    }

    /// Seeds the store again after it lost its state: sources that have not delivered cannot resend, but their old content
    /// can be.
    pub fn resync(self: &Arc<Self>) {
        let keeper = self.clone();
        self.runtime.spawn(async move {
            let old: Vec<_> = keeper.old.lock().iter().map(|(id, saved)| (id.clone(), saved.clone())).collect();
            for (source, saved) in old {
                keeper.seed(&source, &saved).await;
            }
        });
    }

    /// Adds to a whole snapshot the saved objects of the kinds for which its source has no answer, because it has not
    /// deleted them.
    async fn complete(&self, batch: SourceBatch) -> SourceBatch {
        let SourceBatch { source, change: Change::Full(mut configs) } = batch else { return batch };
        let board = self.boards().into_iter().find(|b| b.read().source == source);
        let unanswered = board.map(|b| b.read().unanswered).unwrap_or_default();
        if unanswered.is_empty() {
            self.rest.lock().remove(&source);
        } else if let Some(saved) = self.saved(&source).await {
            let kept = saved.configs.iter().filter(|c| unanswered.contains(&c.kind().gvk())).cloned();
            configs.extend(kept);
        }
        SourceBatch { source, change: Change::Full(configs) }
    }

    /// The saved content of a source, read once.
    async fn saved(&self, source: &SourceId) -> Option<Arc<Saved>> {
        let known = self.rest.lock().get(source).or(self.old.lock().get(source)).cloned();
        let saved = match known {
            Some(saved) => saved,
            None => {
                let (folder, name) = (self.folder.clone(), source.clone());
                let loaded = tokio::task::spawn_blocking(move || folder.load(&name)).await.ok()?;
                let refused = |error| tracing::error!(source = &**source, %error, "saved content refused");
                Arc::new(loaded.map_err(refused).ok().flatten()?)
            }
        };
        self.rest.lock().insert(source.clone(), saved.clone());
        Some(saved)
    }

    fn delivered(&self, source: &SourceId) {
        if self.old.lock().remove(source).is_some()
            && let Some(board) = self.boards().iter().find(|b| b.read().source == *source)
        {
            board.write(|r| r.saved_at = None);
        }
        self.delivery.notify_waiters();
    }
}

/// A batch between its source and the reply of the store. When it ends, with a reply or because its source was stopped, the
/// source is to be saved: the store may have taken the batch in either case.
struct Sending {
    keeper: Arc<Keeper>,
    source: SourceId,
}

impl Sending {
    fn new(keeper: &Arc<Keeper>, source: &SourceId) -> Self {
        keeper.sending.lock().insert(source.clone());
        Self { keeper: keeper.clone(), source: source.clone() }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.keeper.changed.lock().insert(self.source.clone());
        self.keeper.sending.lock().remove(&self.source);
        self.keeper.wake.notify_one();
    }
}

/// The sink of the sources, which leads to the store.
#[derive(Debug)]
struct Passage(Arc<Keeper>);

impl ConfigSink for Passage {
    fn apply(&self, batch: SourceBatch) -> BoxFuture<'static, Result<Applied, Interrupted>> {
        let (keeper, source) = (self.0.clone(), batch.source.clone());
        async move {
            let batch = keeper.complete(batch).await;
            let _sending = Sending::new(&keeper, &source);
            let applied = keeper.store.apply(batch).await?;
            keeper.delivered(&source);
            Ok(applied)
        }
        .boxed()
    }

    fn saved(&self, source: &SourceId) -> BoxFuture<'static, Vec<Arc<Config>>> {
        let (keeper, source) = (self.0.clone(), source.clone());
        async move { keeper.saved(&source).await.map_or_else(Vec::new, |saved| saved.configs.clone()) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;
    use serde_json::json;
    use tokio::sync::watch;

    use super::*;
    use crate::{
        model::{ConfigSnapshot, Origin, decode::from_value},
        runtime::{RestartBudget, Shutdown, Supervision},
        sources::SourceRegister,
        store::{AggregateCacheActor, StoreRegister},
    };

    const DEADLINE: Duration = Duration::from_secs(60);
    const SOURCE: &str = "test";

    fn entry(name: &str) -> Arc<Config> {
        let document = json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
            "metadata": {"name": name, "namespace": "shop"}, "spec": {"hosts": [name]}});
        Arc::new(from_value(&document, Origin::default()).unwrap())
    }

    fn batch(names: &[&str]) -> SourceBatch {
        SourceBatch { source: SOURCE.into(), change: Change::Full(names.iter().map(|name| entry(name)).collect()) }
    }

    struct Stage {
        _dir: tempfile::TempDir,
        folder: Folder,
        store: StoreHandle,
        keeper: Arc<Keeper>,
    }

    fn stage() -> Stage {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path(), 1 << 20).unwrap();
        let budget = RestartBudget::new(100, Shutdown::default());
        let supervision = Supervision::new(budget, Duration::from_millis(1), Duration::from_millis(5));
        let published = watch::Sender::new(Arc::new(ConfigSnapshot::default()));
        let store =
            AggregateCacheActor::start(&supervision, vec![SOURCE.into()], published, Vec::new(), Arc::new(|| {}));
        let keeper = Keeper::new(folder.clone(), store.clone(), Duration::from_millis(1));
        Stage { _dir: dir, folder, store, keeper }
    }

    impl Stage {
        /// Names in the file of the source.
        fn saved(&self) -> Option<Vec<String>> {
            let saved = self.folder.load(SOURCE).unwrap()?;
            Some(saved.configs.iter().map(|config| config.meta.name.to_string()).collect())
        }

        /// The last write of a keeper that is stopped.
        async fn stop(&self) {
            let stop = CancellationToken::new();
            stop.cancel();
            tokio::time::timeout(DEADLINE, self.keeper.clone().keep(stop)).await.unwrap();
        }
    }

    #[actix::test]
    async fn a_batch_that_the_store_has_taken_is_saved_although_its_source_was_stopped_before_the_reply() {
        let stage = stage();
        let mut apply = stage.keeper.sink().apply(batch(&["a"]));
        assert!(poll!(&mut apply).is_pending());
        while stage.store.snapshot().by_kind.is_empty() {
            tokio::task::yield_now().await;
        }
        drop(apply);
        stage.stop().await;
        assert_eq!(stage.saved(), Some(vec!["a".to_string()]));
    }

    #[actix::test]
    async fn a_batch_on_its_way_is_saved_by_the_last_write() {
        let stage = stage();
        let mut apply = stage.keeper.sink().apply(batch(&["a"]));
        assert!(poll!(&mut apply).is_pending());
        stage.stop().await;
        assert_eq!(stage.saved(), Some(vec!["a".to_string()]));
        apply.await.unwrap();
    }

    #[actix::test]
    async fn the_file_stays_while_the_store_has_no_content_of_its_source() {
        let stage = stage();
        stage.folder.save(SOURCE, &[entry("a")]).unwrap();
        stage.keeper.changed.lock().insert(SOURCE.into());
        stage.stop().await;
        assert_eq!(stage.saved(), Some(vec!["a".to_string()]), "the source has not delivered to this store");
        stage.keeper.sink().apply(batch(&[])).await.unwrap();
        stage.stop().await;
        assert_eq!(stage.saved(), Some(Vec::new()), "it has no objects");
    }

    #[actix::test]
    async fn a_source_that_is_removed_during_a_write_leaves_no_file() {
        let stage = stage();
        stage.keeper.sink().apply(batch(&["a"])).await.unwrap();
        let mut write = Box::pin(stage.keeper.write());
        assert!(poll!(&mut write).is_pending());
        let register = StoreRegister::new(stage.store.clone(), Some((stage.keeper.clone(), DEADLINE)));
        let removal = actix::spawn(register.remove(SOURCE.into()));
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        write.await;
        removal.await.unwrap().unwrap();
        assert_eq!(stage.saved(), None);
        stage.stop().await;
        assert_eq!(stage.saved(), None, "nor does a later write bring it back");
    }
}
