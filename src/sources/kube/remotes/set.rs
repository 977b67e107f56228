//! The set of remote clusters and its changes: the clusters that are followed, and the sources that come and go with them. Each
//! step may be repeated.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use super::followed::{FollowedCluster, GROUPS};
use crate::{
    model::Mesh,
    runtime::Shutdown,
    settings::{KubeAccess, KubeSettings, KubeconfigText, RemoteCluster, RemoteSettings},
    sources::{
        Source, SourceHandle, SourceId, SourceRegister, SourceStarter,
        kube::{Cluster, Group, KubeSource, RemoteClusterSink, RemoteFiles, RemoteSecrets, Wanted},
    },
};

/// The main cluster, which may name others.
#[derive(Clone)]
pub struct MainCluster {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// Its sources.
    pub sources: Vec<SourceHandle>,
}

/// The surroundings of the actor; they outlive its restarts.
#[derive(Clone)]
pub struct RemoteSetup {
    /// Starts sources.
    pub starter: SourceStarter,
    /// Knows which sources there are.
    pub register: Arc<dyn SourceRegister>,
    /// The main cluster, if there is one.
    pub main: Option<MainCluster>,
    /// The clusters of the command line.
    pub flagged: Vec<RemoteCluster>,
    /// The places where other clusters are named.
    pub settings: RemoteSettings,
    /// The mesh settings in force, and their changes.
    pub mesh: watch::Receiver<Arc<Mesh>>,
    /// Revision of this control plane.
    pub revision: String,
    /// The time that an unconfirmed mass deletion is held back.
    pub deletion_hold: Duration,
    /// Ends all sources.
    pub shutdown: Shutdown,
}

/// The sources that the register has to be told of before others are started.
#[derive(Debug, Default)]
pub(super) struct Announced {
    pub(super) gone: Vec<SourceId>,
    pub(super) expected: Vec<SourceId>,
}

/// The clusters of the command line, and those that were named in the last life of the process: the saved content of
/// these holds until they are named again, or no longer.
pub(super) fn first(setup: &RemoteSetup, clusters: &mut BTreeMap<String, FollowedCluster>) -> Announced {
    for RemoteCluster { name, path } in setup.flagged.iter().filter(|r| !r.path.is_dir()) {
        let access = KubeAccess::Kubeconfig { path: path.clone(), context: None };
        let named_by = path.display().to_string();
        clusters
            .entry(name.clone())
            .or_insert_with(|| FollowedCluster { is_flagged: true, ..followed(setup, name, access, named_by.into()) });
    }
    let main = setup.main.as_ref().filter(|main| main.cluster.settings().registry);
    let suffix = format!("/{}", Group::RemoteRegistry.as_str());
    for source in main.map(|_| setup.register.saved()).unwrap_or_default() {
        let id = source.strip_prefix("kube:").and_then(|rest| rest.strip_suffix(&suffix));
        let is_other = |id: &&str| main.is_some_and(|main| **main.cluster.id() != **id) && !is_flagged(setup, id);
        let Some(id) = id.filter(is_other) else { continue };
        let access = KubeAccess::Text(KubeconfigText("".into()));
        clusters.entry(id.to_string()).or_insert_with(|| followed(setup, id, access, Arc::default()));
    }
    announced(clusters)
}

fn is_flagged(setup: &RemoteSetup, id: &str) -> bool {
    setup.flagged.iter().any(|flagged| flagged.name == *id)
}

/// The source that names clusters: files, where there is a folder of them, else Secrets.
pub(super) fn naming(setup: &RemoteSetup, main: &Arc<Cluster>, sink: Arc<dyn RemoteClusterSink>) -> Arc<dyn Source> {
    let (settings, allowed) = (&setup.settings, setup.settings.allowed.clone());
    let taken: Vec<String> = setup.flagged.iter().map(|flagged| flagged.name.clone()).collect();
    if let Some(folder) = &settings.kubeconfigs {
        return Arc::new(RemoteFiles::new(folder, main.id().clone(), taken, allowed, sink));
    }
    let cluster = match &settings.secrets_in {
        Some(access) => {
            let settings = KubeSettings { access: access.clone(), ..main.settings().clone() };
            Cluster::new(main.id(), settings, setup.mesh.clone())
        }
        None => main.clone(),
    };
    Arc::new(RemoteSecrets::new(cluster, taken, allowed, sink))
}

/// A cluster whose sources have not been started.
fn followed(setup: &RemoteSetup, id: &str, access: KubeAccess, named_by: Arc<str>) -> FollowedCluster {
    let settings = KubeSettings {
        deletion_hold: setup.deletion_hold,
        left_out: setup.settings.left_out.clone(),
        revision: setup.revision.clone(),
        ..KubeSettings::new(access.clone())
    };
    FollowedCluster {
        cluster: Cluster::remote(id, settings, setup.mesh.clone()),
        access,
        named_by,
        is_flagged: false,
        sources: Vec::new(),
        stop: setup.shutdown.child(),
        is_leaving: false,
        since: Instant::now(),
    }
}

/// Brings the set to the clusters that are named now.
pub(super) fn change(
    setup: &RemoteSetup,
    clusters: &mut BTreeMap<String, FollowedCluster>,
    wanted: Wanted,
) -> Announced {
    let mut returning = Vec::new();
    for (id, cluster) in clusters.iter_mut().filter(|(id, c)| !c.is_flagged && !wanted.contains_key(*id)) {
        cluster.stop.cancel();
        if !cluster.is_leaving {
            tracing::info!(cluster = id, "remote cluster gone");
        }
        cluster.is_leaving = true;
    }
    for (id, named) in wanted {
        let Some(access) = named.kubeconfig.map(KubeAccess::Text) else { continue };
        match clusters.get_mut(&id) {
            Some(cluster) if cluster.is_leaving => {
                returning.extend(cluster.source_ids());
                *cluster = followed(setup, &id, access, named.by);
            }
            Some(cluster) => {
                cluster.named_by = named.by;
                if cluster.access != access {
                    // The content in force stays until the cluster has been listed in the new way.
                    cluster.cluster.set_access(access.clone());
                    cluster.access = access;
                    cluster.sources.iter().for_each(SourceHandle::restart);
                    tracing::info!(cluster = id, "remote cluster has another kubeconfig");
                }
            }
            None => drop(clusters.insert(id.clone(), followed(setup, &id, access, named.by))),
        }
    }
    let mut announced = announced(clusters);
    announced.gone.extend(returning);
    announced
}

/// The sources that the register does not know yet, and those that it may forget.
fn announced(clusters: &BTreeMap<String, FollowedCluster>) -> Announced {
    let of = |filter: &dyn Fn(&&FollowedCluster) -> bool| {
        clusters.values().filter(filter).flat_map(|c| c.source_ids().collect::<Vec<_>>()).collect()
    };
    Announced { gone: of(&|c| c.is_leaving), expected: of(&|c| !c.is_leaving && c.sources.is_empty()) }
}

/// Starts the sources of the clusters that came, and drops the clusters that went.
pub(super) fn start_sources(setup: &RemoteSetup, clusters: &mut BTreeMap<String, FollowedCluster>) {
    clusters.retain(|_, cluster| !cluster.is_leaving);
    for (id, cluster) in clusters.iter_mut().filter(|(_, cluster)| cluster.sources.is_empty()) {
        let start = |group: &Group| {
            setup.starter.start(Arc::new(KubeSource::new(cluster.cluster.clone(), *group)), cluster.stop.clone())
        };
        cluster.sources = GROUPS.iter().map(start).collect();
        cluster.sources.iter().for_each(|source| setup.register.started(source.board.clone()));
        tracing::info!(cluster = id, "remote cluster followed");
    }
}
