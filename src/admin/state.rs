//! The handles that the admin pages read.

use std::{sync::Arc, time::Instant};

use super::{Building, Dashboard, Measures};
use crate::{
    discovery::XdsState,
    identity::Authenticator,
    push::PushContext,
    runtime::{Readiness, Supervision},
    sources::SourceList,
    status::StatusHandle,
    store::StoreHandle,
    telemetry::Metrics,
};

/// Access to debug pages over HTTP.
#[derive(Debug, Clone, Default)]
pub struct DebugAccess {
    /// Open to all callers, from everywhere.
    pub open: bool,
    /// Turned off (`ENABLE_DEBUG_ON_HTTP`).
    pub off: bool,
    /// Proves the identities of callers from elsewhere.
    pub authenticator: Option<Authenticator>,
}

/// Handles of the other rooms that the admin pages read; cheap to clone.
#[derive(Clone)]
pub struct AdminState {
    /// The xDS server.
    pub xds: XdsState,
    /// The store.
    pub store: StoreHandle,
    /// All sources.
    pub sources: SourceList,
    /// The statuses of all objects.
    pub status: StatusHandle,
    /// Supervision of all actors.
    pub supervision: Supervision,
    /// The tasks that readiness still waits for.
    pub readiness: Readiness,
    /// The metrics.
    pub metrics: Metrics,
    /// What was counted for the metrics.
    pub measures: Measures,
    /// The builders of pages.
    pub building: Building,
    /// The memory of the dashboard.
    pub dashboard: Dashboard,
    /// Requests a push of everything, for debugging.
    pub push: Arc<dyn Fn() + Send + Sync>,
    /// Access to debug pages over HTTP.
    pub access: DebugAccess,
    /// Start of the process.
    pub started: Instant,
}

impl AdminState {
    /// The context in force; `None` before the first push.
    #[must_use]
    pub fn context(&self) -> Option<Arc<PushContext>> {
        self.xds.current().map(|p| p.context.clone())
    }

    /// Whether every source has synced and a context was published. A process that drains after a handover says yes for the one
    /// that serves the same address.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let serves = self.readiness.is_succeeded() || !self.xds.is_shutting_down();
        self.readiness.is_ready() && self.xds.current().is_some() && serves
    }
}

impl std::fmt::Debug for AdminState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminState").field("access", &self.access).finish_non_exhaustive()
    }
}
