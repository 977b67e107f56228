//! The sources of the settings, and their actors.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Error, Inputs, last_good, process::Process};
use crate::{
    discovery::XdsServerHandle,
    model::{Interrupted, Mesh, PushRequest, Reason, XdsUpdater},
    registration,
    registry::RegistryHandle,
    runtime::Readiness,
    settings::{KubeAccess, MeshSettings, RemoteCluster, Settings, SourceSettings, StateSettings},
    sources::{
        ConfigSink, MeshSink, MeshSource, Source, SourceBoard, SourceHandle, SourceId, SourceList, SourceStarter,
        SourceState,
        file::FileSource,
        kube::{Cluster, Group, KubeMesh, KubeSource, KubeWriter, check_access, mesh_values, saved_mesh_values},
        xds::{Credentials, SecretData, TargetError, UpstreamSource, UpstreamTarget},
    },
    store::{StoreHandle, last_good::Keeper},
};

/// Whether all sources are folders: a program of this machine could read them as well.
pub(super) fn are_folders(settings: &SourceSettings) -> bool {
    let remote = settings.remote_clusters.iter().all(|remote| remote.path.is_dir());
    remote && settings.kubernetes.is_none() && settings.upstream.addresses.is_empty()
}

/// The sources that are to be started.
pub(super) struct Named {
    /// In order of precedence.
    pub(super) sources: Vec<Arc<dyn Source>>,
    /// The mesh settings in force are those of the files or of the cluster, not defaults.
    mesh_is_known: bool,
}

impl Named {
    /// The precedence of the sources.
    pub(super) fn order(&self) -> Vec<SourceId> {
        self.sources.iter().map(|source| source.id()).collect()
    }
}

/// Finds the sources of these settings, and puts the mesh settings of the cluster in force.
pub(super) async fn find(process: &Process, settings: &Settings) -> Result<Named, Error> {
    let (Process { inputs, cluster, .. }, kept) = (process, settings.state.folder.is_some());
    check_files(&inputs.mesh(), &settings.sources, cluster.as_ref(), kept).await?;
    let mesh_is_known = match cluster {
        Some(cluster) => mesh_of_cluster(cluster, &settings.mesh, &settings.state, inputs).await,
        None => true,
    };
    let sources = named(inputs, &settings.mesh, &settings.sources, cluster.as_ref(), kept)?;
    Ok(Named { sources, mesh_is_known })
}

/// The sources in order of precedence: the mesh config's `configSources` when there are any, else the folders, then the
/// cluster, then the upstreams. Ingress and the registry of a cluster are read in any case, as Istio does.
///
/// A missing folder is a configuration error, unless last good content is `kept` that can be served instead.
fn named(
    inputs: &Inputs,
    mesh_settings: &MeshSettings,
    settings: &SourceSettings,
    cluster: Option<&Arc<Cluster>>,
    kept: bool,
) -> Result<Vec<Arc<dyn Source>>, Error> {
    let mesh = &*inputs.mesh();
    let skip: Vec<PathBuf> =
        [&mesh_settings.config_file, &mesh_settings.networks_file].into_iter().flatten().cloned().collect();
    let folder = |named_by: &str, path: &Path| -> Result<Arc<dyn Source>, Error> {
        match fs::metadata(path) {
            Err(e) if kept => {
                tracing::warn!(folder = %path.display(), error = %e, "starting without this config folder")
            }
            found => {
                found.map_err(|e| Error::Source(format!("{named_by}{}: {e}", path.display())))?;
            }
        }
        Ok(Arc::new(FileSource::new(path, skip.clone(), settings.clone())))
    };
    let of_cluster = |groups: &[Group]| -> Vec<Arc<dyn Source>> {
        let source =
            |cluster: &Arc<Cluster>, group| Arc::new(KubeSource::new(cluster.clone(), group)) as Arc<dyn Source>;
        cluster.into_iter().flat_map(|c| groups.iter().map(|g| source(c, *g))).collect()
    };
    let config = [Group::Crd, Group::GatewayApi];
    let upstream = |named_by: &str, target: Result<UpstreamTarget, TargetError>| -> Result<Arc<dyn Source>, Error> {
        let target = target.map_err(|e| Error::Source(format!("{named_by}: {e}")))?.reading(secrets(cluster));
        if target.is_unverified() {
            tracing::warn!(
                upstream = target.address(),
                "insecureSkipVerify: the upstream's certificate is not verified"
            );
        }
        Ok(Arc::new(UpstreamSource::new(target, &settings.upstream, settings.deletion_hold)))
    };
    let mut sources = Vec::new();
    if mesh.config.config_sources.is_empty() {
        for dir in &settings.config_dirs {
            sources.push(folder("--config-dir ", dir)?);
        }
        sources.extend(of_cluster(&config));
        for address in &settings.upstream.addresses {
            sources.push(upstream("--upstream", UpstreamTarget::of_settings(address, &settings.upstream, mesh))?);
        }
    }
    for source in &mesh.config.config_sources {
        match source.address.split_once("://") {
            Some(("fs", "")) => return Err(Error::Source("configSources: fs:// without a path".to_string())),
            Some(("fs", path)) => sources.push(folder("configSources: fs://", Path::new(path))?),
            Some(("k8s", "" | "/")) if cluster.is_some() => sources.extend(of_cluster(&config)),
            Some(("k8s", "" | "/")) => {
                return Err(Error::Source("configSources: k8s:// without a cluster; name a kubeconfig".to_string()));
            }
            Some(("xds", _)) => {
                sources.push(upstream("configSources", UpstreamTarget::of_source(source, &settings.upstream, mesh))?);
            }
            _ => tracing::warn!(address = source.address, "config source of a kind that is not read yet, passed over"),
        }
    }
    if settings.kubernetes.as_ref().is_some_and(|k| k.registry) {
        sources.extend(of_cluster(&[Group::Ingress, Group::Registry]));
    }
    sources.extend(of_cluster(&[Group::Discovery]));
    for remote in &settings.remote_clusters {
        sources.extend(remote_folder(inputs, remote, settings)?.map(|s| Arc::new(s) as Arc<dyn Source>));
    }
    if let Some(cluster) = twice(settings.remote_clusters.iter().map(|remote| &remote.name)) {
        return Err(Error::Source(format!("--remote-cluster {cluster}: there are two of this name")));
    }
    if let Some(source) = twice(sources.iter().map(|source| source.id())) {
        let named_by = "--config-dir, --upstream and configSources name each source once";
        return Err(Error::Source(format!("{source} is there twice; {named_by}")));
    }
    Ok(sources)
}

/// Checks the files by which clusters and upstreams are reached. A missing one is a configuration error, unless last good
/// content is `kept` that can be served until it comes.
async fn check_files(
    mesh: &Mesh,
    settings: &SourceSettings,
    cluster: Option<&Arc<Cluster>>,
    kept: bool,
) -> Result<(), Error> {
    let mut wrong = Vec::new();
    if let Some(kubernetes) = &settings.kubernetes
        && let Err(error) = check_access(&kubernetes.access).await
    {
        let by_file = matches!(kubernetes.access, KubeAccess::Kubeconfig { .. });
        wrong.push(if by_file { format!("--{error}") } else { error.to_string() });
    }
    for RemoteCluster { name, path } in settings.remote_clusters.iter().filter(|r| !r.path.is_dir()) {
        let access = KubeAccess::Kubeconfig { path: path.clone(), context: None };
        let error = check_access(&access).await.err();
        wrong.extend(
            error.map(|e| format!("--remote-cluster {name}={}", e.to_string().trim_start_matches("kubeconfig "))),
        );
    }
    let sources = &mesh.config.config_sources;
    let of_flags = settings.upstream.addresses.iter().filter(|_| sources.is_empty());
    let of_flags =
        of_flags.map(|address| ("--upstream", UpstreamTarget::of_settings(address, &settings.upstream, mesh)));
    let of_mesh = sources.iter().filter(|s| s.address.starts_with("xds://"));
    let of_mesh = of_mesh.map(|source| ("configSources", UpstreamTarget::of_source(source, &settings.upstream, mesh)));
    // An address that is malformed is refused when its source is started.
    for (named_by, target) in of_flags.chain(of_mesh).filter_map(|(by, target)| Some((by, target.ok()?))) {
        let target = target.reading(secrets(cluster));
        let error = target.check().await.err();
        wrong.extend(error.map(|e| format!("{named_by} {}: {e:#}", target.address())));
    }
    match wrong.into_iter().next() {
        Some(error) if kept => tracing::warn!(error, "starting with saved content"),
        Some(error) => return Err(Error::Source(error)),
        None => {}
    }
    Ok(())
}

/// The Secrets that the `credentialName` of an upstream names, where there is a cluster.
fn secrets(cluster: Option<&Arc<Cluster>>) -> Option<Arc<dyn Credentials>> {
    cluster.map(|cluster| Arc::new(ClusterSecrets(KubeWriter::new(cluster.clone()))) as Arc<dyn Credentials>)
}

/// Secrets of the control plane's namespace.
struct ClusterSecrets(KubeWriter);

impl Credentials for ClusterSecrets {
    fn secret<'a>(&'a self, name: &'a str) -> BoxFuture<'a, anyhow::Result<SecretData>> {
        async move {
            let found = self.0.read_secret(name).await?;
            found.map(|secret| secret.data).ok_or_else(|| anyhow::anyhow!("there is no such Secret"))
        }
        .boxed()
    }
}

fn twice<T: Ord>(mut names: impl Iterator<Item = T>) -> Option<T> {
    let mut seen = BTreeSet::new();
    names.find_map(|name| seen.replace(name))
}

/// Puts the mesh settings of the cluster in force before anything starts, unless files hold them. A cluster that cannot be
/// reached does not prevent the start: its saved settings are in force until it answers. Without saved ones the process starts
/// and is not ready, because the defaults may differ from the settings that proxies have. Returns whether they are known.
async fn mesh_of_cluster(cluster: &Cluster, mesh: &MeshSettings, kept: &StateSettings, inputs: &Inputs) -> bool {
    if mesh.config_file.is_some() || mesh.networks_file.is_some() {
        return true;
    }
    let made = |(config, networks)| {
        Mesh::validated(&config, &networks, &mesh.domain, &mesh.cluster_id).map_err(|e| e.to_string())
    };
    let error = match mesh_values(cluster).await.and_then(made) {
        Ok(mesh) => {
            inputs.set_mesh(Arc::new(mesh));
            return true;
        }
        Err(error) => error,
    };
    let registry = KubeSource::name(cluster, Group::Registry);
    let saved = last_good::load(kept, &registry);
    let saved = saved.and_then(|s| saved_mesh_values(cluster, &s.configs)).and_then(made);
    match saved {
        Ok(mesh) => {
            tracing::warn!(error, "starting with the mesh settings that were saved");
            inputs.set_mesh(Arc::new(mesh));
            true
        }
        Err(why) => {
            tracing::warn!(error, saved = why, "not ready before the mesh settings of the cluster are known");
            false
        }
    }
}

/// A remote cluster of a folder; those with a kubeconfig are started later ([`super::remotes`]).
fn remote_folder(
    inputs: &Inputs,
    remote: &RemoteCluster,
    settings: &SourceSettings,
) -> Result<Option<FileSource>, Error> {
    let (name, path) = (remote.name.as_str(), remote.path.as_path());
    if *name == *inputs.mesh().cluster_id {
        return Err(Error::Source(format!("--remote-cluster {name}: this is the main cluster's id (--cluster-id)")));
    }
    let found =
        fs::metadata(path).map_err(|e| Error::Source(format!("--remote-cluster {name}={}: {e}", path.display())))?;
    Ok(found.is_dir().then(|| FileSource::new(path, Vec::new(), settings.clone()).of_cluster(name)))
}

/// The receivers of the content of sources.
pub(super) struct Sinks {
    /// The store, by way of the keeper of last good content.
    pub(super) configs: Arc<dyn ConfigSink>,
    /// The store itself, for content that is kept elsewhere.
    pub(super) direct: StoreHandle,
    /// The registry, for mesh settings.
    pub(super) registry: RegistryHandle,
    /// The xDS server, for mesh settings.
    pub(super) xds: XdsServerHandle,
}

impl Sinks {
    /// Starts sources that deliver to the keeper.
    pub(super) fn starter(&self, process: &Process, settings: &SourceSettings) -> SourceStarter {
        SourceStarter {
            sink: self.configs.clone(),
            supervision: process.supervision.clone(),
            silence: settings.silence.max(settings.rescan * 3),
        }
    }
}

/// The sources that were started.
pub(super) struct Started {
    /// All of them, the mesh settings last.
    pub(super) handles: Vec<SourceHandle>,
    /// The config sources among them whose last good content is kept on disk.
    pub(super) kept: Vec<SourceHandle>,
    /// Every config source has delivered.
    pub(super) synced: BoxFuture<'static, ()>,
}

/// Starts an actor for each source, and one for the mesh settings where there are files of them.
pub(super) fn start(
    process: &Process,
    settings: &Settings,
    Named { sources, mesh_is_known }: Named,
    sinks: Sinks,
    starter: &SourceStarter,
) -> Started {
    let Process { shutdown, readiness, inputs, cluster, .. } = process;
    let (mesh, settings) = (settings.mesh.clone(), settings.sources.clone());
    let past_keeper = SourceStarter { sink: Arc::new(sinks.direct), ..starter.clone() };
    let begin = |source: Arc<dyn Source>| {
        let starter = if *source.id() == *registration::SOURCE { &past_keeper } else { starter };
        starter.start(source, shutdown.child())
    };
    let mut handles: Vec<SourceHandle> = sources.into_iter().map(begin).collect();
    let kept = handles.iter().filter(|h| *h.id() != *registration::SOURCE).cloned().collect();
    let mut waits: Vec<_> = handles.iter().map(|h| delivered(h.board.clone(), readiness)).collect();
    let sink = Arc::new(MeshInForce { registry: sinks.registry, inputs: inputs.clone(), xds: sinks.xds });
    let current = inputs.mesh();
    if mesh.config_file.is_some() || mesh.networks_file.is_some() {
        handles.push(begin(Arc::new(MeshSource::new(mesh, settings, sink, &current))));
    } else if let Some(cluster) = cluster {
        let handle = begin(Arc::new(KubeMesh::new(cluster.clone(), mesh, sink, &current)));
        if !mesh_is_known {
            waits.push(delivered(handle.board.clone(), readiness));
        }
        handles.push(handle);
    }
    Started { handles, kept, synced: join_all(waits).map(drop).boxed() }
}

/// Waits until a source has delivered for the first time; the process is not ready before.
fn delivered(board: Arc<SourceBoard>, readiness: &Readiness) -> BoxFuture<'static, ()> {
    let guard = readiness.guard(&board.read().source);
    async move {
        board.until(|report| report.state != SourceState::Starting).await;
        drop(guard);
    }
    .boxed()
}

/// Puts mesh settings in force: the registry first, then everything is pushed.
struct MeshInForce {
    registry: RegistryHandle,
    inputs: Arc<Inputs>,
    xds: XdsServerHandle,
}

impl MeshSink for MeshInForce {
    fn apply(&self, mesh: Arc<Mesh>) -> BoxFuture<'static, Result<(), Interrupted>> {
        let (registry, inputs, xds) = (self.registry.clone(), self.inputs.clone(), self.xds.clone());
        async move {
            let networks = inputs.mesh().networks != mesh.networks;
            registry.set_mesh(mesh.clone()).await?;
            inputs.set_mesh(mesh);
            xds.config_update(PushRequest::everything(if networks { Reason::Networks } else { Reason::Global }));
            Ok(())
        }
        .boxed()
    }
}

/// Makes every source resend everything when the store requests a resync, and seeds saved content again.
pub(super) fn follow_resyncs(
    mut resyncs: watch::Receiver<u64>,
    sources: SourceList,
    keeper: Option<Arc<Keeper>>,
    stop: CancellationToken,
) {
    tokio::spawn(stop.run_until_cancelled_owned(async move {
        while resyncs.changed().await.is_ok() {
            sources.all().iter().for_each(SourceHandle::resync);
            keeper.iter().for_each(Keeper::resync);
        }
    }));
}

#[cfg(test)]
mod tests;
