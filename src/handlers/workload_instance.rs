//! The workload instance handler: Pods go to the registry, because ServiceEntries may select them (Istio's
//! `WorkloadInstanceHandler`).

use super::{Decide, Decision};
use crate::model::{ConfigEvent, Kind};

/// Sends Pods to the registry.
#[derive(Debug, Default)]
pub struct WorkloadInstanceHandler;

impl Decide for WorkloadInstanceHandler {
    const NAME: &'static str = "workload-instance-handler";

    fn wants(kind: Kind) -> bool {
        kind == Kind::Pod
    }

    fn decide(&self, events: &[ConfigEvent]) -> Decision {
        Decision { registry: !events.is_empty(), push: None }
    }
}
