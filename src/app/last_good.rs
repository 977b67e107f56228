//! The last good content on disk: between the sources and the store, where a folder for it is named.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::{Error, state_lock::StateLock};
use crate::{
    runtime::Shutdown,
    settings::StateSettings,
    sources::{ConfigSink, SourceHandle},
    store::{
        StoreHandle,
        last_good::{Folder, Keeper, Saved},
    },
};

/// The keeper, if there is a folder.
pub(super) fn open(settings: &StateSettings, store: &StoreHandle) -> Result<Option<Arc<Keeper>>, Error> {
    let Some(path) = &settings.folder else { return Ok(None) };
    let folder = Folder::open(path, settings.max_bytes).map_err(|e| Error::State(e.to_string()))?;
    Ok(Some(Keeper::new(folder, store.clone(), settings.quiet)))
}

/// The saved content of a source, before anything is started.
///
/// # Errors
/// The reason, when there is no folder, or no sound file of the source in it.
pub(super) fn load(settings: &StateSettings, source: &str) -> Result<Saved, String> {
    let path = settings.folder.as_ref().ok_or("no folder for saved content (--state-dir)")?;
    let folder = Folder::open(path, settings.max_bytes).map_err(|e| e.to_string())?;
    folder.load(source).map_err(|e| e.to_string())?.ok_or_else(|| "nothing was saved".to_string())
}

/// The sink that leads from the sources to the store.
pub(super) fn sink(keeper: Option<&Arc<Keeper>>, store: &StoreHandle) -> Arc<dyn ConfigSink> {
    keeper.map_or_else(|| Arc::new(store.clone()) as Arc<dyn ConfigSink>, Keeper::sink)
}

/// Starts to save the content of these sources once this process has the lock, and serves saved content for those that do not deliver. The task ends when all
/// is written.
pub(super) fn start(
    keeper: Option<Arc<Keeper>>,
    sources: &[SourceHandle],
    settings: &StateSettings,
    lock: Option<&StateLock>,
    shutdown: &Shutdown,
) -> Option<JoinHandle<()>> {
    let (keeper, lock, stop) = (keeper?, lock?.clone(), shutdown.child());
    keeper.watch(sources.iter().map(|s| s.board.clone()).collect());
    tokio::spawn(keeper.clone().stand_in(settings.grace));
    Some(tokio::spawn(async move {
        if lock.taken(&stop).await.is_some() {
            keeper.keep(stop).await;
        }
    }))
}
