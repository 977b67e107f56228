//! The ServiceEntry handler: ServiceEntries go to the registry, which separates added, deleted, updated and unchanged services
//! (Istio's `serviceEntryHandler`).

use super::{Decide, Decision};
use crate::model::{ConfigEvent, Kind};

/// Sends ServiceEntries to the registry.
#[derive(Debug, Default)]
pub struct ServiceEntryHandler;

impl Decide for ServiceEntryHandler {
    const NAME: &'static str = "service-entry-handler";

    fn wants(kind: Kind) -> bool {
        kind == Kind::ServiceEntry
    }

    fn decide(&self, events: &[ConfigEvent]) -> Decision {
        Decision { registry: !events.is_empty(), push: None }
    }
}
