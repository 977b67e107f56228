//! Proxies whose services, labels or locality may differ after a change of the registry.

use std::{collections::HashSet, sync::Arc};

use super::Node;

/// The set of proxies whose registry data may differ. It may hold more proxies than differ, never fewer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MovedNodes {
    /// Whether all proxies are in the set.
    pub all: bool,
    /// Proxies with one of these addresses.
    pub addresses: HashSet<Arc<str>>,
    /// Proxies with one of these ids (`name.namespace`).
    pub ids: HashSet<Arc<str>>,
    /// Proxies in one of these namespaces.
    pub namespaces: HashSet<Arc<str>>,
}

impl MovedNodes {
    /// The set of all proxies.
    #[must_use]
    pub fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.all && self.addresses.is_empty() && self.ids.is_empty() && self.namespaces.is_empty()
    }

    /// Whether the proxy is in the set.
    #[must_use]
    pub fn touch(&self, node: &Node) -> bool {
        self.all
            || (!self.addresses.is_empty() && node.ips.iter().any(|ip| self.addresses.contains(ip)))
            || (!self.ids.is_empty() && self.ids.contains(&node.id))
            || (!self.namespaces.is_empty()
                && (self.namespaces.contains(&node.namespace)
                    || self.namespaces.contains(node.metadata.other("NAMESPACE"))))
    }

    /// Adds the proxies of `other`.
    pub fn extend(&mut self, other: Self) {
        self.all |= other.all;
        self.addresses.extend(other.addresses);
        self.ids.extend(other.ids);
        self.namespaces.extend(other.namespaces);
    }
}
