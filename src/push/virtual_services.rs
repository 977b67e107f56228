//! VirtualServices: short names resolved, delegates merged, indexed by gateway and visibility
//! (Istio's `virtualServiceIndex`, `mergeVirtualServicesIfNeeded`).

use std::sync::Arc;

use super::{ProxyView, context::PushInputs};
use crate::model::Config;

/// VirtualServices, indexed.
#[derive(Debug, Default)]
pub struct VirtualServiceIndex {
    /// All root VirtualServices after merging, oldest first.
    pub all: Vec<Arc<Config>>,
}

impl VirtualServiceIndex {
    /// Builds the index.
    #[must_use]
    pub fn build(_inputs: &PushInputs) -> Self {
        Self::default()
    }

    /// The VirtualServices bound to `gateway` (`mesh` or `namespace/name`) that are visible to the view's namespace, oldest
    /// first (Istio's `VirtualServicesForGateway`).
    #[must_use]
    pub fn for_gateway(&self, _view: &ProxyView, _gateway: &str) -> Vec<Arc<Config>> {
        Vec::new()
    }
}
