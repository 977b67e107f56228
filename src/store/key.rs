//! The identity of an object over all clusters.

use std::{fmt, sync::Arc};

use crate::model::{Config, ConfigKey, FullKey, Placed};

/// Identity of an object over all clusters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreKey {
    /// Cluster that the object is from; empty is the main one.
    pub cluster: Arc<str>,
    /// Kind, namespace, name.
    pub key: ConfigKey,
}

impl StoreKey {
    /// The identity of an object.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        Self { cluster: config.origin.cluster.clone(), key: config.key() }
    }
}

impl Placed for StoreKey {
    fn place(&self) -> FullKey<'_> {
        self.key.within(&self.cluster)
    }
}

impl fmt::Display for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.cluster.is_empty() {
            write!(f, "{}:", self.cluster)?;
        }
        write!(f, "{}", self.key)
    }
}
