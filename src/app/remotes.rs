//! Remote clusters that are reached by a kubeconfig: those of the command line, and those that Secrets of the main cluster
//! name while the process runs.
//!
//! Each has sources of its own. Nothing waits for one for ever: a cluster that is out of reach at the start is left out, as
//! in Istio, until it delivers.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use actix::ArbiterHandle;
use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use tokio::{
    sync::{Mutex, oneshot, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::sources::Starter;
use crate::{
    model::Mesh,
    runtime::{Readiness, Shutdown},
    settings::{KubeAccess, KubeSettings, KubeconfigText, RemoteCluster, RemoteSettings},
    sources::{
        Source, SourceHandle, SourceId, SourceList, SourceState,
        kube::{Cluster, Group, KubeSource, RemoteClusters, RemoteFiles, RemoteSecrets, Wanted},
    },
    store::{StoreHandle, last_good::Keeper},
};

/// The remote clusters that are followed.
pub(super) struct Remotes {
    pub(super) starter: Starter,
    /// The thread on which actors are started.
    pub(super) thread: ArbiterHandle,
    pub(super) store: StoreHandle,
    /// Stands in for a cluster that is out of reach, after this time.
    pub(super) keeper: Option<(Arc<Keeper>, Duration)>,
    pub(super) list: SourceList,
    pub(super) mesh: watch::Receiver<Arc<Mesh>>,
    pub(super) settings: RemoteSettings,
    pub(super) revision: String,
    pub(super) deletion_hold: Duration,
    pub(super) shutdown: Shutdown,
    pub(super) of_secrets: Mutex<BTreeMap<String, Remote>>,
    /// Secrets were read once.
    pub(super) began: AtomicBool,
}

/// A remote cluster that is followed.
pub(super) struct Remote {
    cluster: Arc<Cluster>,
    access: KubeAccess,
    handles: Vec<SourceHandle>,
    stop: CancellationToken,
}

impl Remotes {
    /// Follows the clusters of the command line, and begins to read the Secrets of the main cluster that name others. Must
    /// run on a thread of actix. The process is not ready before what is given back is done.
    pub(super) async fn begin(
        self: Arc<Self>,
        flagged: &[RemoteCluster],
        main: Option<Arc<Cluster>>,
        readiness: &Readiness,
    ) -> BoxFuture<'static, ()> {
        let mut waits = Vec::new();
        for RemoteCluster { name, path } in flagged.iter().filter(|r| !r.path.is_dir()) {
            let remote = self.add(name, KubeAccess::Kubeconfig { path: path.clone(), context: None }).await;
            waits.push(remote.delivered(self.settings.patience));
        }
        if let Some(main) = main.filter(|m| m.settings().registry) {
            let taken: Vec<String> = flagged.iter().map(|r| r.name.clone()).collect();
            waits.extend(self.remember(&main, &taken).await);
            let registry = self.list.find(&KubeSource::name(&main, Group::Registry));
            let handle = self.starter.begin(self.names(&main, taken), self.shutdown.child());
            self.list.add(std::slice::from_ref(&handle));
            waits.push(read(handle, registry).boxed());
        }
        let guard = readiness.guard("remote clusters");
        async move {
            join_all(waits).await;
            drop(guard);
        }
        .boxed()
    }

    /// The source that names clusters: files, where there is a folder of them, else Secrets.
    fn names(self: &Arc<Self>, main: &Arc<Cluster>, taken: Vec<String>) -> Arc<dyn Source> {
        let (sink, allowed) = (Arc::new(OfSecrets(self.clone())), self.settings.allowed.clone());
        if let Some(folder) = &self.settings.kubeconfigs {
            return Arc::new(RemoteFiles::new(folder, (main.id().clone(), taken), allowed, sink));
        }
        let cluster = match &self.settings.secrets_in {
            Some(access) => {
                let settings = KubeSettings { access: access.clone(), ..main.settings().clone() };
                Cluster::new(main.id(), settings, self.mesh.clone())
            }
            None => main.clone(),
        };
        Arc::new(RemoteSecrets::new(cluster, taken, allowed, sink))
    }

    /// Clusters that Secrets named in the last life of the process: what was saved of them holds until the Secrets say again
    /// how they are reached, or that they are gone.
    async fn remember(&self, main: &Cluster, taken: &[String]) -> Vec<BoxFuture<'static, ()>> {
        let Some((keeper, _)) = &self.keeper else { return Vec::new() };
        let suffix = format!("/{}", Group::RemoteRegistry.as_str());
        let mut waits = Vec::new();
        for source in keeper.saved_sources() {
            let id = source.strip_prefix("kube:").and_then(|rest| rest.strip_suffix(&suffix));
            let Some(id) = id.filter(|id| **id != **main.id() && !taken.iter().any(|t| t == id)) else { continue };
            let remote = self.add(id, KubeAccess::Text(KubeconfigText("".into()))).await;
            let (gone, delivered) = (remote.stop.clone(), remote.delivered(self.settings.patience));
            self.of_secrets.lock().await.insert(id.to_string(), remote);
            let wait = async move {
                tokio::select! {
                    () = gone.cancelled() => {}
                    () = delivered => {}
                }
            };
            waits.push(wait.boxed());
        }
        waits
    }

    /// Follows a cluster. Its sources are started, and have delivered nothing yet.
    async fn add(&self, id: &str, access: KubeAccess) -> Remote {
        let settings = KubeSettings {
            deletion_hold: self.deletion_hold,
            left_out: self.settings.left_out.clone(),
            revision: self.revision.clone(),
            ..KubeSettings::new(access.clone())
        };
        let cluster = Cluster::remote(id, settings, self.mesh.clone());
        let stop = self.shutdown.child();
        let mut handles = Vec::new();
        for group in [Group::RemoteRegistry, Group::Discovery] {
            // The store has to know a source before it delivers.
            self.store.add_source(KubeSource::name(&cluster, group)).await;
            let (starter, source, stop) = (self.starter.clone(), KubeSource::new(cluster.clone(), group), stop.clone());
            let (started, handle) = oneshot::channel();
            self.thread.spawn_fn(move || drop(started.send(starter.begin(Arc::new(source), stop))));
            handles.extend(handle.await.ok());
        }
        self.list.add(&handles);
        if let Some((keeper, grace)) = &self.keeper {
            keeper.watch(handles.iter().map(|h| h.board.clone()).collect());
            for handle in &handles {
                tokio::spawn(keeper.clone().stand_in_later(handle.board.clone(), *grace));
            }
        }
        tracing::info!(cluster = id, "remote cluster followed");
        Remote { cluster, access, handles, stop }
    }

    async fn remove(&self, id: &str, remote: Remote) {
        remote.stop.cancel();
        let sources: Vec<SourceId> = remote.handles.iter().map(SourceHandle::id).collect();
        self.list.remove(&sources);
        for source in sources {
            self.store.remove_source(source.clone()).await;
            if let Some((keeper, _)) = &self.keeper {
                keeper.forget(&source);
            }
        }
        tracing::info!(cluster = id, "remote cluster gone");
    }

    async fn bring_to(&self, wanted: Wanted) {
        let mut named = self.of_secrets.lock().await;
        let gone: Vec<String> = named.keys().filter(|id| !wanted.contains_key(*id)).cloned().collect();
        for id in gone {
            if let Some(remote) = named.remove(&id) {
                self.remove(&id, remote).await;
            }
        }
        for (id, text) in wanted {
            let Some(access) = text.map(KubeAccess::Text) else { continue };
            match named.get_mut(&id) {
                Some(remote) if remote.access == access => {}
                Some(remote) => {
                    // The content in force stays until the cluster has been listed in the new way.
                    remote.cluster.set_access(access.clone());
                    remote.access = access;
                    remote.handles.iter().for_each(SourceHandle::restart);
                    tracing::info!(cluster = id, "remote cluster has another kubeconfig");
                }
                None => {
                    let remote = self.add(&id, access).await;
                    named.insert(id, remote);
                }
            }
        }
        if !self.began.swap(true, Ordering::AcqRel) {
            let waits: Vec<_> = named.values().map(|remote| remote.delivered(self.settings.patience)).collect();
            drop(named);
            join_all(waits).await;
        }
    }
}

impl Remote {
    /// Waits until the cluster has delivered, or has taken longer than this about it; zero is no bound.
    fn delivered(&self, patience: Duration) -> BoxFuture<'static, ()> {
        let boards: Vec<_> = self.handles.iter().map(|h| h.board.clone()).collect();
        let id = self.cluster.id().clone();
        async move {
            let all = join_all(boards.iter().map(|b| b.until(|r| r.state != SourceState::Starting)));
            let patience = if patience.is_zero() { Duration::MAX } else { patience };
            if timeout(patience, all).await.is_err() {
                metrics::counter!("remote_cluster_sync_timeouts_total", "cluster" => id.to_string()).increment(1);
                tracing::warn!(cluster = &*id, "remote cluster does not deliver; starting without it");
            }
        }
        .boxed()
    }
}

/// Waits until Secrets were read, which takes too long when the main cluster's content is what was saved of it.
async fn read(secrets: SourceHandle, registry: Option<SourceHandle>) {
    let saved = async {
        match registry {
            Some(registry) => registry.board.until(|r| r.saved_at.is_some()).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = secrets.board.until(|r| r.state != SourceState::Starting) => {}
        () = saved => {}
    }
}

/// Those that Secrets name.
struct OfSecrets(Arc<Remotes>);

impl RemoteClusters for OfSecrets {
    fn follow(&self, wanted: Wanted) -> BoxFuture<'static, ()> {
        let remotes = self.0.clone();
        async move { remotes.bring_to(wanted).await }.boxed()
    }
}
