//! Which proxies a change of the registry may give other services, labels or another locality.

use std::{collections::HashSet, sync::Arc};

use super::Node;

/// Proxies for which a registry's answers may differ. More may be named than differ, never fewer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MovedNodes {
    /// All of them.
    pub all: bool,
    /// Those with one of these addresses.
    pub addresses: HashSet<Arc<str>>,
    /// Those with one of these ids (`name.namespace`).
    pub ids: HashSet<Arc<str>>,
    /// Those of these namespaces.
    pub namespaces: HashSet<Arc<str>>,
}

impl MovedNodes {
    /// All proxies.
    #[must_use]
    pub fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    /// No proxy is concerned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.all && self.addresses.is_empty() && self.ids.is_empty() && self.namespaces.is_empty()
    }

    /// Whether the proxy may be one of them.
    #[must_use]
    pub fn touch(&self, node: &Node) -> bool {
        self.all
            || (!self.addresses.is_empty() && node.ips.iter().any(|ip| self.addresses.contains(ip)))
            || (!self.ids.is_empty() && self.ids.contains(&node.id))
            || (!self.namespaces.is_empty()
                && (self.namespaces.contains(&node.namespace)
                    || self.namespaces.contains(node.metadata.other("NAMESPACE"))))
    }

    /// Adds those of `other`.
    pub fn extend(&mut self, other: Self) {
        self.all |= other.all;
        self.addresses.extend(other.addresses);
        self.ids.extend(other.ids);
        self.namespaces.extend(other.namespaces);
    }
}
