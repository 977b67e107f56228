//! The rooms that answer some requests of clients.

use std::sync::Arc;

use super::{debug::DebugPages, registrar::Registrar};
use crate::identity::{Authenticator, AuthorityHandle, SecretAccessHandle};

/// The rooms that answer some requests of clients in place of the server.
#[derive(Clone, Default)]
pub struct Ports {
    /// Answers debug requests.
    pub debug: Option<Arc<dyn DebugPages>>,
    /// Registers the workloads behind clients.
    pub registrar: Option<Arc<dyn Registrar>>,
    /// Proves the identities of clients; without it no client proves any.
    pub authenticator: Option<Authenticator>,
    /// Signs certificates of workloads.
    pub authority: Option<AuthorityHandle>,
    /// Has the cluster asked about clients that ask for Secrets.
    pub secret_access: Option<SecretAccessHandle>,
}
