//! All sources that there are now: those that were named at the start, and those of remote clusters, which come and go.

use std::sync::Arc;

use tokio::sync::watch;

use super::{SourceHandle, kube::RemoteClusters};

/// All sources, to read; shared by the pages and by the actors that send to them.
#[derive(Clone)]
pub struct SourceList {
    named: Arc<[SourceHandle]>,
    remotes: watch::Receiver<Arc<RemoteClusters>>,
}

impl SourceList {
    /// The list of the sources of the start, and of the published remote clusters.
    #[must_use]
    pub fn new(named: Vec<SourceHandle>, remotes: watch::Receiver<Arc<RemoteClusters>>) -> Self {
        Self { named: named.into(), remotes }
    }

    /// All of them, now, in order of precedence.
    #[must_use]
    pub fn all(&self) -> Vec<SourceHandle> {
        self.named.iter().chain(self.remotes().sources()).cloned().collect()
    }

    /// The source of this name.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<SourceHandle> {
        self.all().into_iter().find(|s| *s.id() == *id)
    }

    /// The remote clusters that are followed now.
    #[must_use]
    pub fn remotes(&self) -> Arc<RemoteClusters> {
        self.remotes.borrow().clone()
    }
}

impl std::fmt::Debug for SourceList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.all().iter().map(SourceHandle::id)).finish()
    }
}
