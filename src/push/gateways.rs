//! Gateways that select a router, merged by port (Istio's `model.MergedGateway`, `mergeGateways`).

use std::sync::Arc;

use super::{
    ProxyView,
    context::{PushContext, PushInputs},
};
use crate::model::Config;

/// All servers of all Gateways that select one router, merged by port.
#[derive(Debug, Default)]
pub struct MergedGateway {}

/// Gateways, indexed.
#[derive(Debug, Default)]
pub struct GatewayIndex {
    /// All Gateways, oldest first.
    pub all: Vec<Arc<Config>>,
}

impl GatewayIndex {
    /// Builds the index.
    #[must_use]
    pub fn build(_inputs: &PushInputs) -> Self {
        Self::default()
    }

    /// The Gateways that select the view, merged; `None` when none does. Target ports come from the view's own services.
    #[must_use]
    pub fn merged(&self, _context: &PushContext, _view: &ProxyView) -> Option<Arc<MergedGateway>> {
        None
    }
}
