//! The sources that there are now: those that were named at the start, and those that come and go.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::{SourceHandle, SourceId};

/// All sources, in order of precedence; shared by those who show them or speak to them.
#[derive(Clone, Default)]
pub struct SourceList(Arc<ArcSwap<Vec<SourceHandle>>>);

impl SourceList {
    /// All of them, now.
    #[must_use]
    pub fn all(&self) -> Arc<Vec<SourceHandle>> {
        self.0.load_full()
    }

    /// The source of this name.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<SourceHandle> {
        self.all().iter().find(|s| *s.id() == *id).cloned()
    }

    /// Adds sources after the others.
    pub fn add(&self, more: &[SourceHandle]) {
        self.0.rcu(|list| list.iter().chain(more).cloned().collect::<Vec<_>>());
    }

    /// Removes these sources.
    pub fn remove(&self, ids: &[SourceId]) {
        self.0.rcu(|list| list.iter().filter(|s| !ids.contains(&s.id())).cloned().collect::<Vec<_>>());
    }
}

impl std::fmt::Debug for SourceList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.all().iter().map(SourceHandle::id)).finish()
    }
}
