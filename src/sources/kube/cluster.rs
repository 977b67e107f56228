//! The state that all sources of one cluster share: the connection, the CRDs, the selected namespaces, and the mesh
//! settings that select them.

use std::{sync::Arc, time::Duration};

use kube::Client;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    ConnectError, FeedReport, FeedState, RawObject,
    answers::Answers,
    connect::Connection,
    feed_log::FeedLog,
    follower::{Follower, WatchTarget},
    namespaces::Namespaces,
    presence::{self, Crds},
    status::FeedBoard,
};
use crate::{
    model::Mesh,
    settings::{KubeAccess, KubeSettings},
};

/// Feeds that fail within this time are logged together.
const TOGETHER: Duration = Duration::from_secs(1);
/// The least time between two logs.
const BETWEEN: Duration = Duration::from_secs(10);

/// The connection to one cluster and the state that its sources share.
pub struct Cluster {
    id: Arc<str>,
    remote: bool,
    settings: KubeSettings,
    connection: Connection,
    pub(super) crds: watch::Sender<Crds>,
    /// The state of the watch of CRDs: while they are not known, kinds that have one wait.
    pub(super) crd_board: FeedBoard,
    pub(super) namespaces: watch::Sender<Namespaces>,
    mesh: watch::Receiver<Arc<Mesh>>,
    /// The log of the feeds, and whether a task that writes it runs.
    log: Arc<Mutex<(FeedLog, bool)>>,
    /// Faults to inject into feeds.
    #[cfg(any(test, feature = "testing"))]
    pub(super) faults: crate::runtime::Faults,
}

impl Cluster {
    /// A cluster without a connection yet. `mesh` are the mesh settings in force.
    #[must_use]
    pub fn new(id: &str, settings: KubeSettings, mesh: watch::Receiver<Arc<Mesh>>) -> Arc<Self> {
        Arc::new(Self::with(id, false, settings, mesh))
    }

    /// A cluster whose services join the mesh; its objects carry its id.
    #[must_use]
    pub fn remote(id: &str, settings: KubeSettings, mesh: watch::Receiver<Arc<Mesh>>) -> Arc<Self> {
        Arc::new(Self::with(id, true, settings, mesh))
    }

    fn with(id: &str, remote: bool, settings: KubeSettings, mesh: watch::Receiver<Arc<Mesh>>) -> Self {
        let connection = Connection::new(&settings);
        let (crds, namespaces) = (watch::Sender::default(), watch::Sender::default());
        let resource = presence::resource();
        let crd_board = FeedBoard::new(format!("{}.{}", resource.plural, resource.group));
        Self {
            id: id.into(),
            remote,
            settings,
            connection,
            crds,
            crd_board,
            namespaces,
            mesh,
            log: Arc::default(),
            #[cfg(any(test, feature = "testing"))]
            faults: crate::runtime::Faults::from_env(),
        }
    }

    /// The cluster that objects say they are from; empty for the main one.
    pub(super) fn origin(&self) -> Arc<str> {
        if self.remote { self.id.clone() } else { Arc::default() }
    }

    /// Id of the cluster.
    #[must_use]
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// The settings of its access and watches.
    #[must_use]
    pub const fn settings(&self) -> &KubeSettings {
        &self.settings
    }

    /// The mesh settings, and their changes.
    pub(super) fn mesh(&self) -> watch::Receiver<Arc<Mesh>> {
        self.mesh.clone()
    }

    pub(super) async fn client(&self) -> Result<Client, ConnectError> {
        self.connection.client().await
    }

    /// The cluster is reached in another way from now on. Its sources have to be restarted to go that way.
    pub fn set_access(&self, access: KubeAccess) {
        self.connection.set_access(access);
    }

    pub(super) fn forget_client(&self) {
        self.connection.forget();
    }

    pub(super) fn answers(&self) -> &Answers {
        self.connection.answers()
    }

    /// Changes the state of a feed, and logs it together with the other feeds of the cluster.
    pub(super) fn tell<F: Follower>(&self, follower: &mut F, change: &mut dyn FnMut(&mut FeedReport)) {
        let mut now = None;
        follower.report(&mut |report| {
            change(report);
            now = Some(report.clone());
        });
        let mut log = self.log.lock();
        let is_news = now.is_some_and(|report| log.0.note(&report));
        if is_news && !std::mem::replace(&mut log.1, true) {
            tokio::spawn(write(self.id.clone(), self.log.clone()));
        }
    }

    /// The path at which a target is listed and watched.
    pub(super) fn path(&self, target: &WatchTarget) -> String {
        <RawObject as kube::Resource>::url_path(&target.resource, target.namespace.as_deref())
    }

    /// The server's `Retry-After` of its last refusal of this target.
    pub(super) fn asked_to_wait(&self, target: &WatchTarget) -> Duration {
        self.answers().take_retry_after(&self.path(target)).unwrap_or_default()
    }
}

/// Logs the noted changes, until there are none left.
async fn write(cluster: Arc<str>, log: Arc<Mutex<(FeedLog, bool)>>) {
    let mut pause = TOGETHER;
    loop {
        tokio::time::sleep(pause).await;
        pause = BETWEEN;
        let lines = {
            let mut log = log.lock();
            let lines = log.0.take();
            if lines.is_empty() {
                log.1 = false;
                return;
            }
            lines
        };
        for line in lines {
            let (count, resources) = (line.count, line.resources);
            if line.state == FeedState::Watching {
                tracing::info!(cluster = &*cluster, count, resources, "kinds of the cluster are read again");
            } else {
                let (state, error) = (line.state, line.error);
                tracing::warn!(
                    cluster = &*cluster,
                    ?state,
                    error,
                    count,
                    resources,
                    "kinds of the cluster cannot be read"
                );
            }
        }
    }
}
