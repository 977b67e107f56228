//! The cluster that a destination stands for (Istio's `GetDestinationCluster`).

use crate::{
    generate::names::{Direction, subset_key},
    model::Service,
    proto::networking::Destination,
};

/// The cluster of a destination without a host, which an invalid Gateway API reference becomes. No such cluster exists.
#[must_use]
pub fn unknown() -> String {
    "UnknownService".to_string()
}

/// The cluster of a destination: its port, else the only port of its service, else the port that is listened on. An alias
/// leads to the service that it names. A service that is not known is no error: the cluster may come from the bootstrap.
#[must_use]
pub fn of(destination: &Destination, service: Option<&Service>, listen_port: u32) -> String {
    if destination.host.is_empty() {
        return unknown();
    }
    let host = service.map(|s| s.external_name.as_str()).filter(|n| !n.is_empty()).unwrap_or(&destination.host);
    let port = match (&destination.port, service.map(|s| s.ports.as_slice())) {
        (Some(port), _) => port.number,
        (None, Some([only])) => only.port,
        _ => listen_port,
    };
    subset_key(Direction::Outbound, &destination.subset, host, port)
}
