//! The order in which services are read.

use crate::model::Service;

/// Oldest first, then by name and namespace (Istio's `SortServicesByCreationTime`; the name is the Kubernetes Service's
/// name or the ServiceEntry's host).
#[must_use]
pub fn service_order(a: &Service, b: &Service) -> std::cmp::Ordering {
    (a.creation_time, &a.name, &a.namespace).cmp(&(b.creation_time, &b.name, &b.namespace))
}
