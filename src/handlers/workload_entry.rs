//! The WorkloadEntry handler: WorkloadEntries go to the registry, which finds the services that select them (Istio's
//! `workloadEntryHandler`). A change of health is a change of endpoints.

use super::{Decide, Decision};
use crate::model::{ConfigEvent, Kind};

/// Sends WorkloadEntries to the registry.
#[derive(Debug, Default)]
pub struct WorkloadEntryHandler;

impl Decide for WorkloadEntryHandler {
    const NAME: &'static str = "workload-entry-handler";

    fn wants(kind: Kind) -> bool {
        kind == Kind::WorkloadEntry
    }

    fn decide(&self, events: &[ConfigEvent]) -> Decision {
        Decision { registry: !events.is_empty(), push: None }
    }
}
