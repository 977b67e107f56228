//! Remote clusters that Secrets of the main cluster name (Istio's secret controller): label `istio/multiCluster=true`, in
//! the control plane's namespace, a kubeconfig under the id of each cluster.
//!
//! This source delivers no objects: it announces the clusters to follow, and the actor of the remote clusters follows them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Secret;

use super::{
    Cluster, FeedReport, FeedState, RawObject,
    follower::{End, Follower, ObjectChange, WatchTarget},
    groups::resource,
    status::FeedBoard,
    wanted::{NamedBy, NamedClusters, Wanted, wanted},
    watch::alone,
};
use crate::{
    model::{Interrupted, Kind},
    sources::{Findings, Source, SourceId, SourcePort, SourceState},
};

/// The label of the Secrets.
const LABEL: &str = "istio/multiCluster=true";

/// Pause before the set of clusters is handed over again.
const RETRY: Duration = Duration::from_secs(1);

/// Takes the remote clusters that are named.
pub trait RemoteClusterSink: Send + Sync + 'static {
    /// Hands all of them over. The reply comes when they are followed; that to the first ones when they have delivered or taken
    /// too long about it.
    fn follow(&self, wanted: Wanted) -> BoxFuture<'static, Result<(), Interrupted>>;
}

/// Hands the clusters over until they were taken.
pub(super) async fn hand_over(sink: &dyn RemoteClusterSink, wanted: &Wanted) {
    while sink.follow(wanted.clone()).await.is_err() {
        tokio::time::sleep(RETRY).await;
    }
}

/// The Secrets with remote clusters as a source.
pub struct RemoteSecrets {
    cluster: Arc<Cluster>,
    taken: Arc<[String]>,
    allowed: Arc<BTreeSet<String>>,
    sink: Arc<dyn RemoteClusterSink>,
}

impl RemoteSecrets {
    /// The source; `taken` are ids of clusters that are followed for another reason, `allowed` are options of kubeconfigs
    /// that are not taken otherwise.
    #[must_use]
    pub fn new(
        cluster: Arc<Cluster>,
        taken: Vec<String>,
        allowed: BTreeSet<String>,
        sink: Arc<dyn RemoteClusterSink>,
    ) -> Self {
        Self { cluster, taken: taken.into(), allowed: Arc::new(allowed), sink }
    }
}

impl Source for RemoteSecrets {
    fn id(&self) -> SourceId {
        format!("kube:{}/remote-clusters", self.cluster.id()).into()
    }

    fn run(&self, port: SourcePort) -> BoxFuture<'static, anyhow::Result<()>> {
        let cluster = self.cluster.clone();
        let mut follower = SecretFollower {
            taken: self.taken.clone(),
            allowed: self.allowed.clone(),
            sink: self.sink.clone(),
            secrets: BTreeMap::new(),
            board: FeedBoard::new("secrets".to_string()),
            source: self.id(),
            port: port.clone(),
            cluster: cluster.clone(),
        };
        async move {
            alone(&cluster, &mut follower, &port).await;
            Ok(())
        }
        .boxed()
    }
}

struct SecretFollower {
    cluster: Arc<Cluster>,
    taken: Arc<[String]>,
    allowed: Arc<BTreeSet<String>>,
    sink: Arc<dyn RemoteClusterSink>,
    secrets: BTreeMap<String, NamedClusters>,
    board: FeedBoard,
    source: SourceId,
    port: SourcePort,
}

/// A Secret by name, as far as it can be read.
pub(super) type Item = (String, NamedClusters);

impl SecretFollower {
    /// Hands over the present content of the Secrets.
    async fn hand_over(&self) {
        let namespace = self.cluster.settings().namespace.as_str();
        let named_by = NamedBy { source: &self.source, kind: "Secret", namespace };
        let (wanted, refused) = wanted(&self.secrets, self.cluster.id(), &self.taken, &self.allowed, named_by);
        let clusters = wanted.len();
        let before = self.port.board.read().findings.refused.clone();
        for refusal in refused.iter().filter(|r| !before.contains(r)) {
            tracing::warn!(source = &*self.source, "{refusal}");
        }
        // Beats go on meanwhile.
        hand_over(&*self.sink, &wanted).await;
        self.port.board.write(|r| {
            (r.state, r.objects) = (SourceState::Synced, clusters);
            r.findings = Arc::new(Findings { refused, ..Findings::default() });
            r.last_error.clear();
        });
    }
}

/// A Secret's name, and the clusters that it names.
pub(super) fn named(object: &RawObject) -> Item {
    let secret: Secret = serde_json::from_str(object.text()).unwrap_or_default();
    let created = secret.metadata.creation_timestamp.map(|t| t.0.to_string()).unwrap_or_default();
    let text = |bytes: k8s_openapi::ByteString| String::from_utf8(bytes.0).ok().map(Into::into);
    let clusters = secret.data.unwrap_or_default().into_iter().map(|(id, bytes)| (id, text(bytes))).collect();
    (object.name().to_string(), NamedClusters { created, clusters })
}

/// Counts an event of a Secret, under istiod's name.
fn count(event: &'static str) {
    metrics::counter!("remote_cluster_secret_events_total", "event" => event).increment(1);
}

impl Follower for SecretFollower {
    type Object = RawObject;
    type Item = Item;

    fn target(&mut self) -> BoxFuture<'_, WatchTarget> {
        async {
            WatchTarget {
                resource: resource(Kind::Secret, "v1"),
                namespace: Some(self.cluster.settings().namespace.clone()),
                fields: None,
                labels: Some(LABEL.to_string()),
            }
        }
        .boxed()
    }

    fn read(&mut self, object: RawObject, _: bool) -> Item {
        named(&object)
    }

    fn listed(&mut self, list: Vec<Item>) -> BoxFuture<'_, Result<(), End>> {
        async move {
            let before = std::mem::replace(&mut self.secrets, list.into_iter().collect());
            self.secrets.keys().filter(|name| !before.contains_key(*name)).for_each(|_| count("add"));
            before.keys().filter(|name| !self.secrets.contains_key(*name)).for_each(|_| count("delete"));
            self.hand_over().await;
            Ok(())
        }
        .boxed()
    }

    fn told(&mut self, changes: Vec<ObjectChange<Item>>) -> BoxFuture<'_, Result<(), End>> {
        async move {
            for change in changes {
                match change {
                    ObjectChange::Put((name, named)) => {
                        count(if self.secrets.insert(name, named).is_some() { "update" } else { "add" });
                    }
                    ObjectChange::Gone((name, _)) => {
                        if self.secrets.remove(&name).is_some() {
                            count("delete");
                        }
                    }
                }
            }
            self.hand_over().await;
            Ok(())
        }
        .boxed()
    }

    fn report(&mut self, change: &mut dyn FnMut(&mut FeedReport)) {
        let state = self.board.write(change);
        let feed = self.board.read();
        self.port.board.write(|r| {
            match state {
                // Without the right to see Secrets there are no remote clusters by Secrets.
                FeedState::Forbidden if r.state == SourceState::Starting => r.state = SourceState::Synced,
                FeedState::Retrying | FeedState::Forbidden | FeedState::Absent if r.state != SourceState::Starting => {
                    r.state = SourceState::Stale;
                }
                _ => {}
            }
            r.last_error.clone_from(&feed.last_error);
            if feed.last_error.is_empty() && r.state == SourceState::Stale {
                r.state = SourceState::Synced;
            }
            r.feeds = vec![feed];
        });
    }
}
