//! One remote cluster that is followed, and the set of them as it is published.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    settings::KubeAccess,
    sources::{
        SourceHandle, SourceId, SourceState,
        kube::{Cluster, Group, KubeSource, KubeWriter},
    },
};

/// The groups of kinds that are read of a remote cluster, a source each.
pub(super) const GROUPS: [Group; 2] = [Group::RemoteRegistry, Group::Discovery];

/// A remote cluster that is followed.
#[derive(Clone)]
pub(super) struct FollowedCluster {
    pub(super) cluster: Arc<Cluster>,
    pub(super) access: KubeAccess,
    /// The Secret or the file that names it.
    pub(super) named_by: Arc<str>,
    /// It is named on the command line: Secrets do not take it away.
    pub(super) is_flagged: bool,
    /// Its sources; none before they were started.
    pub(super) sources: Vec<SourceHandle>,
    /// Ends its sources.
    pub(super) stop: CancellationToken,
    /// No longer named; its objects are being removed.
    pub(super) is_leaving: bool,
    pub(super) since: Instant,
}

impl FollowedCluster {
    /// The names of its sources.
    pub(super) fn source_ids(&self) -> impl Iterator<Item = SourceId> + '_ {
        GROUPS.iter().map(|group| KubeSource::name(&self.cluster, *group))
    }

    /// Waits until the cluster has delivered, is no longer followed, or has taken longer than this; zero is no bound.
    pub(super) async fn synced(self, patience: Duration) {
        let all = join_all(self.sources.iter().map(|s| s.board.until(|r| r.state != SourceState::Starting)));
        let patience = if patience.is_zero() { Duration::MAX } else { patience };
        let waited = tokio::select! {
            () = self.stop.cancelled() => return,
            waited = timeout(patience, all) => waited,
        };
        if waited.is_err() {
            let id = self.cluster.id();
            metrics::counter!("remote_cluster_sync_timeouts_total", "cluster" => id.to_string()).increment(1);
            tracing::warn!(cluster = &**id, "remote cluster does not deliver; starting without it");
        }
    }
}

/// Whether the content of a cluster is there (Istio's `syncStatus`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncStatus {
    /// It has delivered.
    Synced,
    /// It has not delivered yet.
    Syncing,
    /// It has not delivered, and nothing waits for it any longer.
    Timeout,
}

impl SyncStatus {
    fn of(sources: &[SourceHandle], waited: Duration, patience: Duration) -> Self {
        let has_all = !sources.is_empty() && sources.iter().all(|s| s.board.read().state != SourceState::Starting);
        match has_all {
            true => Self::Synced,
            false if !patience.is_zero() && waited > patience => Self::Timeout,
            false => Self::Syncing,
        }
    }
}

/// A cluster, as `/debug/clusterz` shows it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Its id.
    pub id: String,
    /// The Secret or the file that names it; empty for the main cluster.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub secret_name: Arc<str>,
    /// Whether its content is there.
    pub sync_status: SyncStatus,
}

/// The clusters that are followed now.
#[derive(Clone, Default)]
pub struct RemoteClusters {
    pub(super) clusters: Vec<FollowedCluster>,
    /// The main cluster, with its sources.
    pub(super) main: Option<(Arc<str>, Vec<SourceHandle>)>,
    /// The source that names clusters.
    pub(super) naming: Option<SourceHandle>,
    pub(super) patience: Duration,
    /// Those of the command line and of the last process are followed, and the others are asked for.
    pub(super) has_begun: bool,
}

impl RemoteClusters {
    /// The sources of all remote clusters, after the one that names them.
    pub fn sources(&self) -> impl Iterator<Item = &SourceHandle> {
        self.naming.iter().chain(self.clusters.iter().flat_map(|cluster| &cluster.sources))
    }

    /// A writer to the remote cluster of this id; `None` where none is followed, or it is leaving.
    #[must_use]
    pub fn writer(&self, id: &str) -> Option<KubeWriter> {
        let is_it = |followed: &&FollowedCluster| &**followed.cluster.id() == id && !followed.is_leaving;
        self.clusters.iter().find(is_it).map(|followed| KubeWriter::new(followed.cluster.clone()))
    }

    /// Whether the main cluster is read.
    #[must_use]
    pub const fn has_main(&self) -> bool {
        self.main.is_some()
    }

    /// All clusters with an API server, the main one first.
    #[must_use]
    pub fn statuses(&self) -> Vec<ClusterStatus> {
        let main = self.main.iter().map(|(id, sources)| ClusterStatus {
            id: id.to_string(),
            secret_name: Arc::default(),
            sync_status: SyncStatus::of(sources, Duration::ZERO, Duration::ZERO),
        });
        let remote = self.clusters.iter().map(|cluster| ClusterStatus {
            id: cluster.cluster.id().to_string(),
            secret_name: cluster.named_by.clone(),
            sync_status: SyncStatus::of(&cluster.sources, cluster.since.elapsed(), self.patience),
        });
        main.chain(remote).collect()
    }

    /// Waits until the clusters that are followed now have delivered or taken too long, and the others were named once.
    pub(super) async fn synced(&self) {
        let clusters = join_all(self.clusters.iter().map(|cluster| cluster.clone().synced(self.patience)));
        tokio::join!(clusters, self.named());
    }

    /// Waits until the clusters were named, unless the main cluster's content is the saved one: then the wait would be too
    /// long.
    async fn named(&self) {
        let Some(naming) = &self.naming else { return };
        let registry = self.main.as_ref().and_then(|(id, sources)| {
            let registry = format!("kube:{id}/{}", Group::Registry.as_str());
            sources.iter().find(|s| *s.id() == *registry)
        });
        let saved = async {
            match registry {
                Some(registry) => registry.board.until(|r| r.saved_at.is_some()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = naming.board.until(|r| r.state != SourceState::Starting) => {}
            () = saved => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_is_shown_under_istios_names() {
        let status = |id: &str, secret: &str, sync_status| ClusterStatus {
            id: id.to_string(),
            secret_name: secret.into(),
            sync_status,
        };
        let shown = json!([status("main", "", SyncStatus::Synced), status("east", "a/b", SyncStatus::Timeout)]);
        let east = json!({"id": "east", "secretName": "a/b", "syncStatus": "timeout"});
        assert_eq!(shown, json!([{"id": "main", "syncStatus": "synced"}, east]));
    }
}
