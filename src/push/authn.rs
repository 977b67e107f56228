//! PeerAuthentication: the mutual TLS mode in force for a workload and port (Istio's `authentication.go`, `authn` policies).

use super::context::PushInputs;
use crate::model::Labels;

/// Mutual TLS mode on the server side, after inheritance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MtlsMode {
    /// Nothing says anything.
    Unknown,
    /// Plaintext only.
    Disable,
    /// Both.
    #[default]
    Permissive,
    /// Mutual TLS only.
    Strict,
}

/// PeerAuthentications, indexed.
#[derive(Debug, Default)]
pub struct AuthnPolicies {
    /// Hash of all PeerAuthentications and the root namespace: equal stamps mean equal answers.
    pub stamp: u64,
}

impl AuthnPolicies {
    /// Builds the index.
    #[must_use]
    pub fn build(_inputs: &PushInputs) -> Self {
        Self::default()
    }

    /// The mode for a workload's port (`None`: the workload's own mode), mesh < namespace < workload < port.
    #[must_use]
    pub fn mode(&self, _namespace: &str, _labels: &Labels, _port: Option<u32>) -> MtlsMode {
        MtlsMode::Permissive
    }

    /// The namespace-level mode for a service in `namespace` (auto mutual TLS on the client side).
    #[must_use]
    pub fn namespace_mode(&self, _namespace: &str) -> MtlsMode {
        MtlsMode::Permissive
    }
}
