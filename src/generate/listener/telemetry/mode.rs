//! The side of a workload that a class of listeners is, in the words of Telemetry.

use crate::{generate::proxy_config::ListenerClass, proto::istio::telemetry::v1alpha1::WorkloadMode};

/// The workload's mode for a class of listeners.
#[must_use]
pub(super) const fn mode(class: ListenerClass) -> WorkloadMode {
    match class {
        ListenerClass::SidecarInbound => WorkloadMode::Server,
        ListenerClass::SidecarOutbound | ListenerClass::Gateway => WorkloadMode::Client,
    }
}
