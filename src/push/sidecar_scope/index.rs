//! The choice of the Sidecar for a workload, and the memo of scopes.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;

use super::SidecarScope;
use crate::{
    model::{Config, Kind, NodeType, labels},
    push::{ProxyView, context::PushInputs},
};

/// Limit of the memo, because clients choose the names of namespaces. At the limit all scopes are dropped and computed again
/// on demand.
const MEMO_LIMIT: usize = 4096;

/// The source of a scope, beside its namespace.
#[derive(Debug, Clone, Copy)]
pub(in crate::push) enum ScopeSource<'a> {
    /// No Sidecar object: everything that the namespace may see.
    Default,
    /// A router: no Sidecar object counts.
    Router,
    /// A proxy that is sent no services.
    Nothing,
    /// A Sidecar.
    Sidecar(&'a Arc<Config>),
}

/// A [`ScopeSource`], its Sidecar as `(namespace, name)`.
#[derive(Debug, PartialEq, Eq, Hash)]
enum ScopeKey {
    Default,
    Router,
    Nothing,
    Sidecar(Arc<str>, Arc<str>),
}

impl ScopeSource<'_> {
    fn key(self) -> ScopeKey {
        match self {
            Self::Default => ScopeKey::Default,
            Self::Router => ScopeKey::Router,
            Self::Nothing => ScopeKey::Nothing,
            Self::Sidecar(sidecar) => ScopeKey::Sidecar(sidecar.meta.namespace.clone(), sidecar.meta.name.clone()),
        }
    }
}

/// A place for a scope that the first caller computes; other callers wait for that scope, not for the whole memo.
type ScopeCell = Arc<OnceLock<Arc<SidecarScope>>>;

type Memo = HashMap<(Arc<str>, ScopeKey), ScopeCell>;

/// Sidecars by namespace, with computed scopes memoised.
#[derive(Debug, Default)]
pub struct SidecarIndex {
    /// Sidecars by namespace, those with a workload selector first, each part oldest first.
    by_namespace: HashMap<Arc<str>, Vec<Arc<Config>>>,
    /// The Sidecar of namespaces that have none for a workload: the oldest without selector in the root namespace.
    root: Option<Arc<Config>>,
    memo: Mutex<Memo>,
}

impl SidecarIndex {
    /// The kinds that scopes are made from, with services and settings.
    pub const KINDS: [Kind; 3] = [Kind::Sidecar, Kind::VirtualService, Kind::DestinationRule];

    /// Builds the index.
    #[must_use]
    pub fn build(inputs: &PushInputs) -> Self {
        let all = inputs.configs.list(Kind::Sidecar);
        let selects = |config: &&Arc<Config>| config.sidecar().is_some_and(|s| s.workload_selector.is_some());
        let root_namespace = inputs.mesh.config.root_namespace.as_str();
        let root = all.iter().find(|c| !selects(c) && *c.meta.namespace == *root_namespace).cloned();
        let mut by_namespace: HashMap<Arc<str>, Vec<Arc<Config>>> = HashMap::new();
        for config in all.iter().filter(selects).chain(all.iter().filter(|c| !selects(c))) {
            by_namespace.entry(config.meta.namespace.clone()).or_default().push(config.clone());
        }
        Self { by_namespace, root, memo: Mutex::default() }
    }

    /// The Sidecar that counts for a view: in its own namespace the oldest whose workload selector matches, else the oldest
    /// without one, else the root namespace's without one. None for routers.
    #[must_use]
    pub fn sidecar_of(&self, view: &ProxyView) -> Option<&Arc<Config>> {
        if view.node_type != NodeType::Sidecar {
            return None;
        }
        let matches = |config: &&Arc<Config>| {
            let selector = config.sidecar().and_then(|s| s.workload_selector.as_ref());
            selector.is_none_or(|s| labels::matches(&s.labels, &view.labels))
        };
        let own = self.by_namespace.get(&view.namespace).and_then(|list| list.iter().find(matches));
        own.or(self.root.as_ref())
    }

    /// The scope of a view; `build` makes it where it is not known.
    pub(in crate::push) fn scope_of(
        &self,
        view: &ProxyView,
        build: impl FnOnce(ScopeSource<'_>) -> SidecarScope,
    ) -> Arc<SidecarScope> {
        let source = match (self.sidecar_of(view), view.node_type) {
            (Some(sidecar), _) => ScopeSource::Sidecar(sidecar),
            (None, NodeType::Router | NodeType::Waypoint) => ScopeSource::Router,
            (None, NodeType::Agentgateway) => ScopeSource::Nothing,
            (None, _) => ScopeSource::Default,
        };
        let cell = self.cell((view.namespace.clone(), source.key()));
        cell.get_or_init(|| Arc::new(build(source))).clone()
    }

    fn cell(&self, key: (Arc<str>, ScopeKey)) -> ScopeCell {
        let mut memo = self.memo.lock();
        if memo.len() >= MEMO_LIMIT && !memo.contains_key(&key) {
            memo.clear();
        }
        memo.entry(key).or_default().clone()
    }

    /// All Sidecars of all namespaces.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Config>> {
        self.by_namespace.values().flatten()
    }
}
