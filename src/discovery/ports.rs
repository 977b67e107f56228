//! The rooms that answer some requests of clients.

use std::sync::Arc;

use super::{debug::DebugPages, registrar::Registrar};

/// The rooms that answer some requests of clients in place of the server.
#[derive(Clone, Default)]
pub struct Ports {
    /// Answers debug requests.
    pub debug: Option<Arc<dyn DebugPages>>,
    /// Registers the workloads behind clients.
    pub registrar: Option<Arc<dyn Registrar>>,
}
