//! Ports between rooms: traits that one room calls and another implements, so that neither depends on the other.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::model::{ConfigEvent, Interrupted, PushRequest};

/// Receives push requests (Istio's `XDSUpdater`). Requests are merged in the receiver; calls never block.
pub trait XdsUpdater: Send + Sync + 'static {
    /// Requests a push.
    fn config_update(&self, request: PushRequest);
}

/// Receives the events of objects that the registry reads.
pub trait RegistryPort: Send + Sync + 'static {
    /// Sends events to the registry. The reply comes once the registry's snapshot includes them.
    fn operate(&self, events: Arc<[ConfigEvent]>) -> BoxFuture<'static, Result<(), Interrupted>>;
}
