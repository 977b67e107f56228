//! What a push context is built from, read where it is published.

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use crate::{
    discovery::InputReader,
    model::{ConfigSnapshot, Features, Mesh},
    push::context::PushInputs,
    registry::RegistryHandle,
    store::StoreHandle,
};

/// The published parts: mesh settings, and the snapshots of store and registry once these are started.
pub struct Inputs {
    /// Feature flags.
    pub features: Arc<Features>,
    mesh: watch::Sender<Arc<Mesh>>,
    rooms: OnceLock<(StoreHandle, RegistryHandle)>,
}

impl Inputs {
    /// Mesh settings only.
    #[must_use]
    pub fn new(mesh: Arc<Mesh>, features: Arc<Features>) -> Self {
        Self { features, mesh: watch::Sender::new(mesh), rooms: OnceLock::new() }
    }

    /// Joins the store and the registry. A second call changes nothing.
    pub fn join(&self, store: StoreHandle, registry: RegistryHandle) {
        let _ = self.rooms.set((store, registry));
    }

    /// The mesh settings in force.
    #[must_use]
    pub fn mesh(&self) -> Arc<Mesh> {
        self.mesh.borrow().clone()
    }

    /// Puts new mesh settings in force.
    pub fn set_mesh(&self, mesh: Arc<Mesh>) {
        self.mesh.send_replace(mesh);
    }

    /// The mesh settings in force, and their changes.
    #[must_use]
    pub fn follow_mesh(&self) -> watch::Receiver<Arc<Mesh>> {
        self.mesh.subscribe()
    }

    /// Everything, as it stands.
    #[must_use]
    pub fn read(&self) -> PushInputs {
        let (configs, registry) = match self.rooms.get() {
            Some((store, registry)) => ((*store.snapshot()).clone(), (*registry.snapshot()).clone()),
            None => Default::default(),
        };
        PushInputs { mesh: self.mesh(), features: self.features.clone(), configs, registry }
    }

    /// Reads everything, for the xDS server.
    #[must_use]
    pub fn reader(self: &Arc<Self>) -> InputReader {
        let inputs = self.clone();
        Arc::new(move || inputs.read())
    }

    /// Reads the store's snapshot, for the registry.
    #[must_use]
    pub fn config_reader(self: &Arc<Self>) -> Arc<dyn Fn() -> Arc<ConfigSnapshot> + Send + Sync> {
        let inputs = self.clone();
        Arc::new(move || inputs.rooms.get().map(|(store, _)| store.snapshot()).unwrap_or_default())
    }
}
