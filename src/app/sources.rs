//! Which sources there are, and their actors.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};

use super::{Error, Inputs};
use crate::{
    handlers::XdsUpdater,
    model::{Mesh, PushRequest, Reason},
    registry::RegistryHandle,
    runtime::{Interrupted, Readiness, Shutdown, Wards},
    settings::{MeshSettings, SourceSettings},
    sources::{
        MeshSink, MeshSource, Source, SourceActor, SourceBoard, SourceHandle, SourcePort, SourceState, file::FileSource,
    },
    store::StoreHandle,
    xds::XdsServerHandle,
};

/// The sources in order of precedence: the mesh config's `configSources` when there are any, else the folders.
pub(super) fn named(
    mesh: &Mesh,
    mesh_settings: &MeshSettings,
    settings: &SourceSettings,
) -> Result<Vec<Arc<dyn Source>>, Error> {
    let skip: Vec<PathBuf> =
        [&mesh_settings.config_file, &mesh_settings.networks_file].into_iter().flatten().cloned().collect();
    let folder = |path: &Path| -> Result<Arc<dyn Source>, Error> {
        fs::metadata(path).map_err(|e| Error::Source(format!("config folder {}: {e}", path.display())))?;
        Ok(Arc::new(FileSource::new(path, skip.clone(), settings.clone())))
    };
    if mesh.config.config_sources.is_empty() {
        return settings.config_dirs.iter().map(|dir| folder(dir)).collect();
    }
    let mut sources = Vec::new();
    for source in &mesh.config.config_sources {
        match source.address.split_once("://") {
            Some(("fs", "")) => return Err(Error::Source("configSources: fs:// without a path".to_string())),
            Some(("fs", path)) => sources.push(folder(Path::new(path))?),
            _ => tracing::warn!(address = source.address, "config source of a kind that is not read yet, passed over"),
        }
    }
    Ok(sources)
}

/// Where sources deliver.
pub(super) struct Sinks {
    /// The store.
    pub(super) store: StoreHandle,
    /// The registry, for mesh settings.
    pub(super) registry: RegistryHandle,
    /// The published inputs, for mesh settings.
    pub(super) inputs: Arc<Inputs>,
    /// The xDS server, for mesh settings.
    pub(super) xds: XdsServerHandle,
}

/// The sources that were started.
pub(super) struct Started {
    /// All of them, the mesh settings last.
    pub(super) handles: Vec<SourceHandle>,
    /// The config sources among them.
    pub(super) configs: Vec<SourceHandle>,
    /// Every config source has delivered.
    pub(super) synced: BoxFuture<'static, ()>,
}

/// Starts an actor for each source, and one for the mesh settings where there are files of them.
pub(super) fn start(
    sources: Vec<Arc<dyn Source>>,
    (mesh, settings): (MeshSettings, SourceSettings),
    sinks: &Sinks,
    wards: &Wards,
    shutdown: &Shutdown,
    readiness: &Readiness,
) -> Started {
    let silence = settings.silence.max(settings.rescan * 3);
    let begin = |source: Arc<dyn Source>| {
        let board = Arc::new(SourceBoard::new(source.id()));
        let port = SourcePort {
            sink: Arc::new(sinks.store.clone()),
            board: board.clone(),
            stop: shutdown.child(),
            resync: Arc::default(),
            confirm: Arc::default(),
        };
        let vitals = wards.admit(&format!("source {}", source.id()));
        SourceHandle::new(board, SourceActor::start(source, port, vitals, silence))
    };
    let mut handles: Vec<SourceHandle> = sources.into_iter().map(begin).collect();
    let configs = handles.clone();
    let waits: Vec<_> = handles.iter().map(|h| delivered(h.board.clone(), readiness)).collect();
    if mesh.config_file.is_some() || mesh.networks_file.is_some() {
        let sink =
            MeshInForce { registry: sinks.registry.clone(), inputs: sinks.inputs.clone(), xds: sinks.xds.clone() };
        let source = MeshSource::new(mesh, settings, Arc::new(sink), &sinks.inputs.mesh());
        handles.push(begin(Arc::new(source)));
    }
    Started { handles, configs, synced: join_all(waits).map(drop).boxed() }
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

/// Asks all sources to send everything again; known to the store before the sources are.
#[derive(Default)]
pub(super) struct ResyncAll {
    sources: OnceLock<Vec<SourceHandle>>,
}

impl ResyncAll {
    /// Names the sources. A second call changes nothing.
    pub(super) fn set(&self, sources: Vec<SourceHandle>) {
        let _ = self.sources.set(sources);
    }

    /// Asks.
    pub(super) fn ask(&self) {
        self.sources.get().into_iter().flatten().for_each(SourceHandle::resync);
    }
}
