//! Remote clusters, joined to the main cluster and to the register of sources.

use std::sync::Arc;

use tokio::sync::watch;

use crate::{
    model::Mesh,
    runtime::{Shutdown, Supervision},
    settings::SourceSettings,
    sources::{
        SourceHandle, SourceStarter,
        kube::{Cluster, MainCluster, RemoteClustersActor, RemoteClustersHandle, RemoteSetup},
    },
    store::StoreRegister,
};

/// Whether the settings name remote clusters, or a place that may name some.
pub(super) fn may_be(settings: &SourceSettings) -> bool {
    let remotes = &settings.remotes;
    !settings.remote_clusters.is_empty() || remotes.kubeconfigs.is_some() || remotes.secrets_in.is_some()
}

/// Starts to follow the remote clusters of these settings. `sources` are those of the start.
pub(super) fn start(
    (supervision, shutdown): (&Supervision, &Shutdown),
    settings: SourceSettings,
    (cluster, sources): (Option<Arc<Cluster>>, &[SourceHandle]),
    (starter, register): (SourceStarter, StoreRegister),
    mesh: watch::Receiver<Arc<Mesh>>,
) -> RemoteClustersHandle {
    let main = cluster.map(|cluster| {
        let prefix = format!("kube:{}/", cluster.id());
        let sources = sources.iter().filter(|s| s.id().starts_with(&prefix)).cloned().collect();
        MainCluster { cluster, sources }
    });
    let setup = RemoteSetup {
        starter,
        register: Arc::new(register),
        main,
        flagged: settings.remote_clusters,
        settings: settings.remotes,
        mesh,
        revision: settings.kubernetes.map(|k| k.revision).unwrap_or_default(),
        deletion_hold: settings.deletion_hold,
        shutdown: shutdown.clone(),
    };
    RemoteClustersActor::start(supervision, setup)
}
