//! The Secrets that `credentialName` of `tlsSettings` names.

use std::{collections::BTreeMap, fmt};

use futures::future::BoxFuture;

/// The values of a Secret, by key.
pub type SecretData = BTreeMap<String, Vec<u8>>;

/// Reads Secrets of the control plane's namespace.
pub trait Credentials: Send + Sync {
    /// The content of the Secret of this name, as it is now.
    fn secret<'a>(&'a self, name: &'a str) -> BoxFuture<'a, anyhow::Result<SecretData>>;
}

impl fmt::Debug for dyn Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}
