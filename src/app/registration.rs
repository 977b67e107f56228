//! Workloads that register themselves: the place of their entries, and the file that keeps them over a restart.

use std::{sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use tokio::task::JoinHandle;

use super::{Error, process::Process, state_lock::StateLock};
use crate::{
    discovery::{Registrar, XdsServerHandle},
    registration::{ClusterEntries, Limits, MemoryEntries, RegistrationActor, SOURCE, Setup},
    runtime::Backoff,
    settings::{RegistrationSettings, StateSettings},
    sources::kube::KubeWriter,
    status::ReportBoard,
    store::last_good::Folder,
};

/// Changes without a waiting workload are gathered for this time before they are written to disk.
const QUIET: Duration = Duration::from_secs(1);
/// Pauses before a write that failed is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// The entries outside of any cluster, and the folder that keeps them where one is configured.
pub(super) struct KeptEntries {
    pub(super) entries: MemoryEntries,
    folder: Option<Folder>,
}

/// Opens the folder of the entries outside of any cluster, where one is configured. Kept entries are restored as
/// disconnected ones, until their proxies reconnect or their time is over. A file that cannot be read is moved aside.
pub(super) fn open(settings: &StateSettings, me: &str) -> Result<KeptEntries, Error> {
    let entries = MemoryEntries::default();
    let Some(path) = &settings.folder else { return Ok(KeptEntries { entries, folder: None }) };
    let folder = Folder::open(path, settings.max_bytes).map_err(|e| Error::State(e.to_string()))?;
    match folder.load(SOURCE) {
        Ok(None) => {}
        Ok(Some(saved)) => {
            let taken = entries.restore(&saved.configs, me, Timestamp::now());
            tracing::info!(entries = taken, "registered workloads of before the start");
        }
        Err(error) => {
            let aside = folder.put_aside(SOURCE);
            let kept = aside.as_ref().map_or_else(ToString::to_string, |path| path.display().to_string());
            tracing::error!(%error, kept, "registered workloads of before the start are not known");
        }
    }
    Ok(KeptEntries { entries, folder: Some(folder) })
}

/// Starts to register the workloads of proxies that request it.
pub(super) fn start(
    process: &Process,
    settings: &RegistrationSettings,
    xds: &XdsServerHandle,
    kept: &KeptEntries,
    board: &ReportBoard,
) -> Arc<dyn Registrar> {
    let Process { inputs, cluster, .. } = process;
    let published = xds.state().clone();
    let writable = cluster.as_ref().filter(|c| c.settings().write_status);
    let setup = Setup {
        me: process.me.as_str().into(),
        features: inputs.features.clone(),
        configs: inputs.follow_configs(),
        publications: published.publications(),
        is_complete: Arc::new(move || published.current().is_some()),
        memory: kept.entries.clone(),
        cluster: writable.map(|c| ClusterEntries::new(KubeWriter::new(c.clone()))),
        limits: Limits { per_group: settings.per_group, per_peer: settings.per_peer },
        gone: board.ended(),
    };
    Arc::new(RegistrationActor::start(&process.supervision, setup))
}

/// Writes the entries to disk once this process has the lock, at once where a workload waits for it, and tries again after a
/// failure. Entries that the process before has written in the meantime are taken. The task ends when all is written.
pub(super) fn keep(
    KeptEntries { entries, folder }: KeptEntries,
    process: &Process,
    lock: Option<StateLock>,
) -> Option<JoinHandle<()>> {
    let (folder, lock, stop, me) = (folder?, lock?, process.shutdown.child(), process.me.clone());
    let mut changes = entries.follow();
    let mut written = *changes.borrow_and_update();
    entries.keeping().begin();
    entries.keeping().wrote(written, true);
    let mut pauses = Backoff::new(RETRY.0, RETRY.1);
    Some(tokio::spawn(async move {
        let mut failed = String::new();
        match lock.taken(&stop).await {
            None => return,
            Some(false) => {}
            Some(true) => {
                let from = folder.clone();
                if let Ok(Ok(Some(saved))) = tokio::task::spawn_blocking(move || from.load(SOURCE)).await {
                    entries.restore(&saved.configs, &me, Timestamp::now());
                }
            }
        }
        loop {
            if failed.is_empty() {
                tokio::select! {
                    () = stop.cancelled() => {}
                    changed = changes.changed() => if changed.is_err() { return },
                }
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = entries.keeping().wanted() => {}
                    () = tokio::time::sleep(QUIET) => {}
                }
            } else {
                let _ = tokio::time::timeout(pauses.next_pause(), stop.cancelled()).await;
            }
            let ends = stop.is_cancelled();
            let change = *changes.borrow_and_update();
            if ends && change == written {
                return;
            }
            let (to, configs) = (folder.clone(), entries.content());
            let saved = match tokio::task::spawn_blocking(move || to.save(SOURCE, &configs)).await {
                Ok(saved) => saved.map_err(|e| e.to_string()),
                Err(error) => Err(error.to_string()),
            };
            entries.keeping().wrote(change, saved.is_ok());
            match saved {
                Ok(()) => {
                    written = change;
                    if !failed.is_empty() {
                        tracing::info!("registered workloads are saved again");
                    }
                    failed.clear();
                    pauses.reset();
                }
                Err(error) => {
                    metrics::counter!("pilothouse_last_good_write_failures").increment(1);
                    if error != failed {
                        tracing::warn!(error, "registered workloads are not saved, trying again (--state-dir)");
                    }
                    failed = error;
                }
            }
            if ends {
                return;
            }
        }
    }))
}
