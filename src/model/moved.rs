//! Proxies whose views may differ after a change: of the registry, or of objects that select proxies.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use super::{Labels, Node, labels};

/// The set of proxies whose views may differ. It may hold more proxies than differ, never fewer.
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
    /// Proxies of a namespace, or of any (`None`), with all of the labels of one of these selectors.
    pub selected: BTreeMap<Option<Arc<str>>, BTreeSet<Labels>>,
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
        let nobody = self.addresses.is_empty() && self.ids.is_empty() && self.namespaces.is_empty();
        !self.all && nobody && self.selected.is_empty()
    }

    /// Adds the proxies of a namespace, or of any, that a selector selects.
    pub fn select(&mut self, namespace: Option<&Arc<str>>, selector: &Labels) {
        match namespace {
            None if selector.is_empty() => self.all = true,
            Some(namespace) if selector.is_empty() => drop(self.namespaces.insert(namespace.clone())),
            _ => drop(self.selected.entry(namespace.cloned()).or_default().insert(selector.clone())),
        }
    }

    /// Whether the proxy, whose workload has these labels, is in the set.
    #[must_use]
    pub fn touch(&self, node: &Node, labels: impl FnOnce() -> Labels) -> bool {
        self.all
            || (!self.addresses.is_empty() && node.ips.iter().any(|ip| self.addresses.contains(ip)))
            || (!self.ids.is_empty() && self.ids.contains(&node.id))
            || (!self.namespaces.is_empty()
                && (self.namespaces.contains(&node.namespace)
                    || self.namespaces.contains(node.metadata.other("NAMESPACE"))))
            || self.selects(node, labels)
    }

    fn selects(&self, node: &Node, labels: impl FnOnce() -> Labels) -> bool {
        if self.selected.is_empty() {
            return false;
        }
        let places = [None, Some(node.namespace.clone())];
        let mut selectors = places.iter().filter_map(|place| self.selected.get(place)).flatten().peekable();
        if selectors.peek().is_none() {
            return false;
        }
        let labels = labels();
        selectors.any(|selector| labels::matches(selector, &labels))
    }

    /// Adds the proxies of `other`.
    pub fn extend(&mut self, other: Self) {
        self.all |= other.all;
        self.addresses.extend(other.addresses);
        self.ids.extend(other.ids);
        self.namespaces.extend(other.namespaces);
        for (namespace, selectors) in other.selected {
            self.selected.entry(namespace).or_default().extend(selectors);
        }
    }
}
