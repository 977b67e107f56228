//! What all sources of one cluster share: the connection, which CRDs there are, which namespaces are read, and the mesh
//! settings that say so.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kube::Client;
use tokio::sync::watch;

use super::{
    ConnectError, FeedReport, FeedState, RawObject,
    answers::Answers,
    connect::Connection,
    follower::{Follower, WatchTarget},
    namespaces::Namespaces,
    presence::{self, Crds},
    status::FeedBoard,
    told::FeedLog,
};
use crate::{
    model::Mesh,
    settings::{KubeAccess, KubeSettings},
};

/// Feeds that fail within this time are told of together.
const TOGETHER: Duration = Duration::from_secs(1);
/// Least time between two times of telling.
const BETWEEN: Duration = Duration::from_secs(10);

/// One cluster.
pub struct Cluster {
    id: Arc<str>,
    remote: bool,
    settings: KubeSettings,
    connection: Connection,
    pub(super) crds: watch::Sender<Crds>,
    /// How CRDs are followed: while they are not known, kinds that have one wait.
    pub(super) crd_board: FeedBoard,
    pub(super) namespaces: watch::Sender<Namespaces>,
    mesh: watch::Receiver<Arc<Mesh>>,
    /// What is to be told of the feeds, and whether a task will.
    told: Arc<Mutex<(FeedLog, bool)>>,
}

impl Cluster {
    /// A cluster that nobody has asked anything. `mesh` are the mesh settings in force.
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
        Self { id: id.into(), remote, settings, connection, crds, crd_board, namespaces, mesh, told: Arc::default() }
    }

    /// The cluster that objects say they are from; empty for the main one.
    pub(super) fn origin(&self) -> Arc<str> {
        if self.remote { self.id.clone() } else { Arc::default() }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// How it is reached and watched.
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

    /// Changes how a feed is, and tells it in the log together with the others of the cluster.
    pub(super) fn tell<F: Follower>(&self, follower: &mut F, change: &mut dyn FnMut(&mut FeedReport)) {
        let mut now = None;
        follower.report(&mut |report| {
            change(report);
            now = Some(report.clone());
        });
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = now.is_some_and(|report| told.0.note(&report));
        if is_news && !std::mem::replace(&mut told.1, true) {
            tokio::spawn(tell(self.id.clone(), self.told.clone()));
        }
    }

    /// The path at which a target is listed and watched.
    pub(super) fn path(&self, target: &WatchTarget) -> String {
        <RawObject as kube::Resource>::url_path(&target.resource, target.namespace.as_deref())
    }

    /// How long the server asked to wait with this target when it last refused it.
    pub(super) fn asked_to_wait(&self, target: &WatchTarget) -> Duration {
        self.answers().take_retry_after(&self.path(target)).unwrap_or_default()
    }
}

/// Tells what was noted, until there is nothing more to tell.
async fn tell(cluster: Arc<str>, told: Arc<Mutex<(FeedLog, bool)>>) {
    let mut pause = TOGETHER;
    loop {
        tokio::time::sleep(pause).await;
        pause = BETWEEN;
        let lines = {
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            let lines = told.0.take();
            if lines.is_empty() {
                told.1 = false;
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
