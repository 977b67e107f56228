//! The service handler: Kubernetes Services and what belongs to them go to the registry (Istio's `serviceHandler`); the
//! registry says which services changed and have to be pushed.

use super::{Decide, Decision};
use crate::model::{ConfigEvent, Kind};

/// Hands Services, their endpoints, Namespaces and Nodes to the registry.
#[derive(Debug, Default)]
pub struct ServiceHandler;

impl Decide for ServiceHandler {
    const NAME: &'static str = "service-handler";

    fn wants(kind: Kind) -> bool {
        matches!(kind, Kind::Service | Kind::Endpoints | Kind::EndpointSlice | Kind::Namespace | Kind::Node)
    }

    fn decide(&self, events: &[ConfigEvent]) -> Decision {
        Decision { registry: !events.is_empty(), push: None }
    }
}
