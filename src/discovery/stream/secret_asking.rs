//! The question whether a workload may read Secrets: asked from the first request for one on, for as long as the stream lasts.
//!
//! Names of issued certificates are no Secrets of a cluster.

use crate::{
    generate::sds,
    identity::{IdentityHold, SecretAccessHandle},
    model::Identity,
    xds::Scope,
};

/// The question of one stream.
#[derive(Default)]
pub(super) struct SecretAsking {
    handle: Option<SecretAccessHandle>,
    hold: Option<IdentityHold>,
}

impl SecretAsking {
    /// Nothing is asked without a cluster.
    pub(super) const fn of(handle: Option<SecretAccessHandle>) -> Self {
        Self { handle, hold: None }
    }

    /// Has the cluster asked about this identity where the client wants a Secret.
    pub(super) fn ask(&mut self, scope: Option<&Scope>, identity: Option<&Identity>) {
        let (Some(handle), Some(scope), Some(identity)) = (&self.handle, scope, identity) else { return };
        let is_secret = |name: &str| !matches!(name, sds::DEFAULT | sds::ROOT_CA);
        if self.hold.is_none() && scope.names.names().iter().any(|name| is_secret(name)) {
            self.hold = Some(handle.hold(identity));
        }
    }
}
