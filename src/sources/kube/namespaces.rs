//! The namespaces that are read: those that the mesh's `discoverySelectors` select.

use std::{collections::BTreeSet, sync::Arc};

use crate::model::{Config, Mesh, namespaces::is_discovered};

/// The namespaces that are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Namespaces {
    /// Not known yet: there are selectors, and the namespaces have not come.
    #[default]
    Unknown,
    /// All namespaces.
    All,
    /// The namespaces that the discovery selectors match.
    Selected(Arc<BTreeSet<Arc<str>>>),
}

impl Namespaces {
    /// The namespaces that the mesh settings select. `objects` are all namespaces, once they are known.
    pub(super) fn select<'a>(mesh: &Mesh, objects: Option<impl Iterator<Item = &'a Arc<Config>>>) -> Self {
        if mesh.config.discovery_selectors.is_empty() {
            return Self::All;
        }
        let Some(objects) = objects else { return Self::Unknown };
        let selected = objects.filter(|n| is_discovered(&mesh.config, Some(&n.meta.labels)));
        Self::Selected(Arc::new(selected.map(|n| n.meta.name.clone()).collect()))
    }

    /// Whether objects of this namespace are read; those of the cluster always are.
    pub(super) fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::Unknown => false,
            Self::All => true,
            Self::Selected(names) => namespace.is_empty() || names.contains(namespace),
        }
    }
}
