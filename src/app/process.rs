//! The parts that every room is started with.

use std::{
    env,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use super::{Error, Inputs, inputs::Publishers};
use crate::{
    runtime::{Readiness, RestartBudget, Shutdown, Supervision},
    settings::Settings,
    sources::{kube::Cluster, read_mesh},
};

/// The process around the rooms: its name, its supervision, and the readers of the published parts.
pub(super) struct Process {
    /// The unique name of this process.
    pub(super) me: String,
    pub(super) supervision: Supervision,
    pub(super) shutdown: Shutdown,
    pub(super) readiness: Readiness,
    pub(super) inputs: Arc<Inputs>,
    /// The cluster of the process, where the settings name one.
    pub(super) cluster: Option<Arc<Cluster>>,
}

impl Process {
    /// A process with the mesh settings of the start and nothing else in force, and the senders of the other parts.
    pub(super) fn new(settings: &Settings, shutdown: Shutdown) -> Result<(Self, Publishers), Error> {
        let Settings { sources, mesh, runtime, features, .. } = settings;
        let mesh_of_files = Arc::new(read_mesh(mesh, sources.max_file_bytes).map_err(Error::Mesh)?);
        let (inputs, publishers) = Inputs::new(mesh_of_files, Arc::new(features.clone()));
        let cluster = sources.kubernetes.clone().map(|k| Cluster::new(&mesh.cluster_id, k, inputs.follow_mesh()));
        let budget = RestartBudget::new(runtime.max_restarts_per_minute, shutdown.clone());
        let supervision = Supervision::new(budget, runtime.first_pause, runtime.longest_pause);
        let me = identity();
        Ok((Self { me, supervision, shutdown, readiness: Readiness::default(), inputs, cluster }, publishers))
    }

    /// The name of this process for users: the pod, or else its identity.
    pub(super) fn instance(&self) -> String {
        env::var("POD_NAME").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| self.me.clone())
    }
}

/// The unique name of this process: its pod, or its host with a random part.
fn identity() -> String {
    let host = ["POD_NAME", "HOSTNAME"].iter().find_map(|name| env::var(name).ok()).filter(|name| !name.is_empty());
    let host = host.unwrap_or_else(|| "pilothouse".to_string());
    format!("{host}_{:016x}", RandomState::new().hash_one(std::process::id()))
}
