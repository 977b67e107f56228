//! The keeper between a source and the store.

use std::{sync::Arc, time::Duration};

use futures::poll;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Folder, Keeper};
use crate::{
    model::{Config, ConfigSnapshot, Origin, decode::from_value},
    runtime::{RestartBudget, Shutdown, Supervision},
    sources::{Change, SourceBatch, SourceRegister},
    store::{AggregateCacheActor, StoreHandle, StoreRegister},
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
    let store = AggregateCacheActor::start(&supervision, vec![SOURCE.into()], published, Vec::new(), Arc::new(|| {}));
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
    stage.keeper.changed.lock().unwrap().insert(SOURCE.into());
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
    register.remove(SOURCE.into()).await.unwrap();
    write.await;
    let gone = async {
        while stage.saved().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, gone).await.expect("the file is removed");
}
