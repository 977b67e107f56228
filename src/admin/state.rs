//! What the admin pages read.

use std::{sync::Arc, time::Instant};

use super::Building;
use crate::{
    discovery::XdsState,
    push::PushContext,
    runtime::{Readiness, Wards},
    sources::SourceList,
    status::StatusHandle,
    store::StoreHandle,
    telemetry::Metrics,
};

/// What the admin pages read: handles of the other rooms, cheap to clone.
#[derive(Clone)]
pub struct AdminState {
    /// The xDS server.
    pub xds: XdsState,
    /// The store.
    pub store: StoreHandle,
    /// All sources.
    pub sources: SourceList,
    /// What became of each object.
    pub status: StatusHandle,
    /// All actors.
    pub wards: Wards,
    /// Who is still to come.
    pub readiness: Readiness,
    /// The metrics.
    pub metrics: Metrics,
    /// Where pages are built.
    pub building: Building,
    /// Asks for a push of everything, for debugging.
    pub push: Arc<dyn Fn() + Send + Sync>,
    /// Debug pages answer everybody.
    pub open_debug: bool,
    /// Since when the process runs.
    pub started: Instant,
}

impl AdminState {
    /// The context in force; `None` before the first push.
    #[must_use]
    pub fn context(&self) -> Option<Arc<PushContext>> {
        self.xds.current().map(|p| p.context.clone())
    }

    /// Everything has synced and a context was published.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.readiness.is_ready() && self.xds.current().is_some() && !self.xds.is_shutting_down()
    }
}

impl std::fmt::Debug for AdminState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminState").field("open_debug", &self.open_debug).finish_non_exhaustive()
    }
}
