//! The ports between rooms: a room that hands something on names the port here, and the room that takes it implements it.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::model::{ConfigEvent, Interrupted, PushRequest};

/// Takes requests to push (Istio's `XDSUpdater`). Calls merge in the receiver and never block.
pub trait XdsUpdater: Send + Sync + 'static {
    /// Something changed and is to be pushed.
    fn config_update(&self, request: PushRequest);
}

/// Takes operations on the registry.
pub trait RegistryPort: Send + Sync + 'static {
    /// Hands events over. The reply comes when the registry's snapshot says what they say.
    fn operate(&self, events: Arc<[ConfigEvent]>) -> BoxFuture<'static, Result<(), Interrupted>>;
}
