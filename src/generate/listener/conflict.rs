//! Conflicts within a listener: parts left out for earlier ones, in Istio's words, as texts for people.

use crate::model::Protocol;

/// One refusal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The name of Istio's metric for it.
    pub metric: &'static str,
    /// Name of the listener, or of the inbound chain.
    pub listener: String,
    /// The part that was kept and the one that was left out.
    pub message: String,
}

impl Conflict {
    /// Two services want to be matched alike on one outbound listener.
    #[must_use]
    pub fn outbound(listener: String, accepted: Protocol, rejected: Protocol, host: &str) -> Self {
        let message = format!(
            "Listener={listener} Accepted={} Rejected={} ({host})",
            listener_protocol(accepted),
            listener_protocol(rejected)
        );
        Self { metric: "pilot_conflict_outbound_listener_tcp_over_current_tcp", listener, message }
    }

    /// Two services give one port of the workload different protocols.
    #[must_use]
    pub fn inbound(listener: String, port: u32, existing: &str, incoming: &str) -> Self {
        let message = format!("Conflicting inbound listener:{port}. existing: {existing}, incoming: {incoming}");
        Self { metric: "pilot_conflict_inbound_listener", listener, message }
    }
}

fn listener_protocol(protocol: Protocol) -> &'static str {
    if protocol.is_http() {
        "HTTP"
    } else if protocol.is_tcp() {
        "TCP"
    } else {
        "UNKNOWN"
    }
}
