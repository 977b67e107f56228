//! Remote clusters, joined to the main cluster and to the register of sources.

use std::sync::Arc;

use super::process::Process;
use crate::{
    settings::SourceSettings,
    sources::{
        SourceHandle, SourceStarter,
        kube::{MainCluster, RemoteClustersActor, RemoteClustersHandle, RemoteSetup},
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
    process: &Process,
    settings: &SourceSettings,
    sources: &[SourceHandle],
    starter: SourceStarter,
    register: StoreRegister,
) -> RemoteClustersHandle {
    let main = process.cluster.clone().map(|cluster| {
        let prefix = format!("kube:{}/", cluster.id());
        let sources = sources.iter().filter(|s| s.id().starts_with(&prefix)).cloned().collect();
        MainCluster { cluster, sources }
    });
    let setup = RemoteSetup {
        starter,
        register: Arc::new(register),
        main,
        flagged: settings.remote_clusters.clone(),
        settings: settings.remotes.clone(),
        mesh: process.inputs.follow_mesh(),
        revision: settings.kubernetes.as_ref().map(|k| k.revision.clone()).unwrap_or_default(),
        deletion_hold: settings.deletion_hold,
        shutdown: process.shutdown.clone(),
    };
    RemoteClustersActor::start(&process.supervision, setup)
}
