//! The published parts that a push context is built from. They are made before the rooms that publish them, so that no reader
//! is connected later.

use std::sync::Arc;

use tokio::sync::watch;

use crate::{
    discovery::InputReader,
    model::{
        ConfigSnapshot, Features, Mesh, RegistrySnapshot, ResolvedNames, SecretAccess, WorkloadCertificates,
        key_set::KeySets,
        trust_anchors::{self, FetchedAnchors},
    },
    push::context::PushInputs,
};

/// Readers of the mesh settings, the objects and the registry, as they were last published.
pub struct Inputs {
    /// Feature flags.
    pub features: Arc<Features>,
    mesh: watch::Sender<Arc<Mesh>>,
    configs: watch::Receiver<Arc<ConfigSnapshot>>,
    registry: watch::Receiver<Arc<RegistrySnapshot>>,
    names: watch::Sender<Arc<ResolvedNames>>,
    certificates: watch::Sender<Arc<WorkloadCertificates>>,
    secret_access: watch::Sender<Arc<SecretAccess>>,
    keys: watch::Sender<Arc<KeySets>>,
    fetched_anchors: watch::Sender<Arc<FetchedAnchors>>,
}

/// The senders that the store and the registry publish to.
pub(super) struct Publishers {
    pub(super) configs: watch::Sender<Arc<ConfigSnapshot>>,
    pub(super) registry: watch::Sender<Arc<RegistrySnapshot>>,
}

impl Inputs {
    /// Readers with these mesh settings and nothing else, and the senders of the other parts.
    pub(super) fn new(mesh: Arc<Mesh>, features: Arc<Features>) -> (Arc<Self>, Publishers) {
        let publishers = Publishers { configs: watch::Sender::default(), registry: watch::Sender::default() };
        let (configs, registry) = (publishers.configs.subscribe(), publishers.registry.subscribe());
        (
            Arc::new(Self {
                features,
                mesh: watch::Sender::new(mesh),
                configs,
                registry,
                names: watch::Sender::default(),
                certificates: watch::Sender::default(),
                secret_access: watch::Sender::default(),
                keys: watch::Sender::default(),
                fetched_anchors: watch::Sender::default(),
            }),
            publishers,
        )
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

    /// Puts the addresses of host names in force.
    pub fn set_names(&self, names: Arc<ResolvedNames>) {
        self.names.send_replace(names);
    }

    /// Puts the certificates of connected workloads in force.
    pub fn set_certificates(&self, certificates: Arc<WorkloadCertificates>) {
        self.certificates.send_replace(certificates);
    }

    /// Puts the answers about service accounts that ask for Secrets in force.
    pub fn set_secret_access(&self, access: Arc<SecretAccess>) {
        self.secret_access.send_replace(access);
    }

    /// Puts fetched key sets in force.
    pub fn set_keys(&self, keys: Arc<KeySets>) {
        self.keys.send_replace(keys);
    }

    /// Puts root certificates of fetched bundles in force.
    pub fn set_fetched_anchors(&self, anchors: Arc<FetchedAnchors>) {
        self.fetched_anchors.send_replace(anchors);
    }

    /// The objects in force, and their changes.
    #[must_use]
    pub fn follow_configs(&self) -> watch::Receiver<Arc<ConfigSnapshot>> {
        self.configs.clone()
    }

    /// The inputs of a context built now.
    #[must_use]
    pub fn read(&self) -> PushInputs {
        let (configs, mut registry) = ((**self.configs.borrow()).clone(), (**self.registry.borrow()).clone());
        registry.names = self.names.borrow().clone();
        registry.keys = self.keys.borrow().clone();
        let certificates = self.certificates.borrow().clone();
        let secret_access = self.secret_access.borrow().clone();
        let mesh = self.mesh();
        let anchors = match self.features.multiroot_mesh {
            true => trust_anchors::of_mesh(&mesh.config, &self.fetched_anchors.borrow()),
            false => Arc::default(),
        };
        PushInputs { mesh, anchors, features: self.features.clone(), configs, registry, certificates, secret_access }
    }

    /// Reads all inputs, for the xDS server.
    #[must_use]
    pub fn reader(self: &Arc<Self>) -> InputReader {
        let inputs = self.clone();
        Arc::new(move || inputs.read())
    }
}
