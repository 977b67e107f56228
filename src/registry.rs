//! The service registry: ServiceEntries, WorkloadEntries, Kubernetes Services and pods become services, endpoints and
//! workloads. A pure state machine; the actor around it only passes messages.
//!
//! It follows Istio's registries at HEAD: the serviceentry controller, one kube controller per cluster, and the aggregate
//! over them. Invariants: the state after any order of events is the state of a cold build from the final objects (but for
//! service accounts, which outlive the last endpoint of a service); parts of a snapshot that a change cannot affect are the
//! same `Arc` as before. It never does I/O and never looks at a clock except to stamp push requests.

pub mod actor;
mod aggregate;
mod auto_allocation;
mod decisions;
mod env;
mod external;
mod kube;
mod quarantine;
mod selectors;
mod service_entry;
mod service_order;
mod shards;
mod store;
#[cfg(test)]
mod tests;
mod updates;
mod workload_entry;

pub use actor::{RegistryHandle, RegistrySetup, ServiceEntryStoreActor};
pub use quarantine::Quarantine;
pub use service_order::service_order;
pub use store::ServiceEntryStore;
pub use updates::{EndpointPush, XdsUpdate, push_of};
