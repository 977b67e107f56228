//! The question whether a workload may read Secrets: asked from the first request for one on, for as long as the stream lasts.
//!
//! Names of issued certificates are no Secrets of a cluster.

use crate::{
    generate::sds,
    identity::{SecretAccessHandle, SecretReaderHold},
    model::SecretReader,
    xds::Scope,
};

/// The question of one stream.
#[derive(Default)]
pub(super) struct SecretAsking {
    handle: Option<SecretAccessHandle>,
    hold: Option<SecretReaderHold>,
}

impl SecretAsking {
    /// Nothing is asked without a cluster.
    pub(super) const fn of(handle: Option<SecretAccessHandle>) -> Self {
        Self { handle, hold: None }
    }

    /// Has the client's cluster asked about it where it wants a Secret.
    pub(super) fn ask(&mut self, scope: Option<&Scope>, reader: impl FnOnce() -> Option<SecretReader>) {
        let (Some(handle), Some(scope), None) = (&self.handle, scope, &self.hold) else { return };
        let is_secret = |name: &str| !matches!(name, sds::DEFAULT | sds::ROOT_CA);
        if scope.names.names().iter().any(|name| is_secret(name)) {
            self.hold = reader().map(|reader| handle.hold(&reader));
        }
    }
}
