//! The sources that come and go while the process runs, as the store and the folder for the last good content know them.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};

use super::{StoreHandle, last_good::Keeper};
use crate::{
    model::Interrupted,
    sources::{SourceBoard, SourceId, SourceRegister},
};

/// Tells the store and the keeper which sources there are.
#[derive(Debug, Clone)]
pub struct StoreRegister {
    store: StoreHandle,
    /// Keeps the last good content, and puts it in force for a source that has not delivered after this time.
    keeper: Option<(Arc<Keeper>, Duration)>,
}

impl StoreRegister {
    /// The register of this store.
    #[must_use]
    pub const fn new(store: StoreHandle, keeper: Option<(Arc<Keeper>, Duration)>) -> Self {
        Self { store, keeper }
    }
}

impl SourceRegister for StoreRegister {
    fn expect(&self, source: SourceId) -> BoxFuture<'static, Result<(), Interrupted>> {
        let store = self.store.clone();
        async move { store.add_source(source).await }.boxed()
    }

    fn started(&self, board: Arc<SourceBoard>) {
        if let Some((keeper, grace)) = &self.keeper {
            keeper.watch(vec![board.clone()]);
            tokio::spawn(keeper.clone().stand_in_later(board, *grace));
        }
    }

    fn remove(&self, source: SourceId) -> BoxFuture<'static, Result<(), Interrupted>> {
        let (store, keeper) = (self.store.clone(), self.keeper.clone());
        async move {
            // The file goes first, so that it is gone even if the process is stopped in between; and once more, because the
            // content may have been saved meanwhile.
            if let Some((keeper, _)) = &keeper {
                keeper.forget(&source).await;
            }
            store.remove_source(source.clone()).await?;
            if let Some((keeper, _)) = &keeper {
                keeper.forget(&source).await;
            }
            Ok(())
        }
        .boxed()
    }

    fn saved(&self) -> Vec<String> {
        self.keeper.as_ref().map(|(keeper, _)| keeper.saved_sources()).unwrap_or_default()
    }
}
