//! Workloads that register themselves: where their entries go, and that they outlive the process.

use std::{sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use tokio::task::JoinHandle;

use super::{Error, Inputs};
use crate::{
    registration::{ClusterEntries, MemoryEntries, RegistrationActor, SOURCE, Setup},
    runtime::{Shutdown, Wards},
    settings::StateSettings,
    sources::kube::{Cluster, KubeWriter},
    status::ReportBoard,
    store::{StoreHandle, last_good::Folder},
    xds::XdsState,
};

/// Changes are gathered for this time before they are written to disk.
const QUIET: Duration = Duration::from_secs(1);

/// The entries outside of any cluster, and the folder that keeps them where one is named. Those that were kept are there
/// again, disconnected, until their proxies are back or their time is over.
pub(super) fn open(settings: &StateSettings) -> Result<(MemoryEntries, Option<Folder>), Error> {
    let entries = MemoryEntries::default();
    let Some(path) = &settings.folder else { return Ok((entries, None)) };
    let folder = Folder::open(path, settings.max_bytes).map_err(|e| Error::State(e.to_string()))?;
    match folder.load(SOURCE) {
        Ok(None) => {}
        Ok(Some(saved)) => {
            let taken = entries.restore(&saved.configs, Timestamp::now());
            tracing::info!(entries = taken, "registered workloads of before the start");
        }
        Err(error) => tracing::warn!(%error, "registered workloads of before the start are not known"),
    }
    Ok((entries, Some(folder)))
}

/// Starts to register the workloads behind proxies that ask for it.
pub(super) fn start(
    me: &str,
    (store, state): (&StoreHandle, &XdsState),
    (inputs, wards): (&Inputs, &Wards),
    memory: MemoryEntries,
    (cluster, board): (Option<&Arc<Cluster>>, &ReportBoard),
) {
    let (store, published, board) = (store.clone(), state.clone(), board.clone());
    let writable = cluster.filter(|c| c.settings().write_status);
    let setup = Setup {
        me: me.into(),
        features: inputs.features.clone(),
        // Before the first publication not every source has delivered, and a group may seem to be missing.
        snapshots: Arc::new(move || published.current().map(|_| store.snapshot())),
        memory,
        cluster: writable.map(|c| ClusterEntries::new(KubeWriter::new(c.clone()))),
        gone: Arc::new(move || board.ended()),
    };
    state.set_registrar(Arc::new(RegistrationActor::start(wards, setup)));
}

/// Keeps the entries on disk. The task ends when all is written.
pub(super) fn keep(entries: MemoryEntries, folder: Option<Folder>, shutdown: &Shutdown) -> Option<JoinHandle<()>> {
    let (folder, stop) = (folder?, shutdown.child());
    let mut changes = entries.follow();
    changes.borrow_and_update();
    Some(tokio::spawn(async move {
        loop {
            let ends = tokio::select! {
                () = stop.cancelled() => true,
                changed = changes.changed() => changed.is_err(),
            };
            if !ends {
                let _ = tokio::time::timeout(QUIET, stop.cancelled()).await;
                changes.borrow_and_update();
            } else if !changes.has_changed().unwrap_or_default() {
                return;
            }
            let (folder, configs) = (folder.clone(), entries.content());
            let saved = tokio::task::spawn_blocking(move || folder.save(SOURCE, &configs)).await;
            if let Ok(Err(error)) = saved {
                tracing::warn!(%error, "registered workloads were not saved");
            }
            if ends {
                return;
            }
        }
    }))
}
