//! The service registry: it turns ServiceEntries, WorkloadEntries, Kubernetes Services and Pods into services, endpoints and
//! workloads. It is a pure state machine; its actor only passes messages.
//!
//! It follows Istio's registries at HEAD: the serviceentry controller, one kube controller per cluster, and the aggregate
//! controller over them. Invariants: after any order of events the state equals that of a cold build from the final objects;
//! parts of a snapshot that a change cannot affect keep their `Arc`. It never does I/O, and reads a clock only for the start of
//! push requests.

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
