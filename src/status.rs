//! The status of each object: computed here, shown at `/debug/statusz`.
//!
//! Statuses have four sources: the translation (Gateway API, Ingress), the distribution (the generation of an Istio object
//! that all proxies hold, from their acknowledgements), the allocator of addresses for ServiceEntries and, where
//! `PILOT_ENABLE_ANALYSIS` is on, the analysis of all objects. All are pure; the actor reads the first three a few times a
//! second, and computes only after a change.
//!
//! The process that holds the lease writes them to the objects' cluster. Invariants: a status never runs ahead of the
//! configuration in force; for one generation it never goes back, also across leaders; equal status is not written; a write
//! never undoes another writer's change made meanwhile; if another writer reverts us, we back off; no process writes without
//! the lease.

pub mod actor;
mod addresses;
mod analysis;
pub mod cluster;
mod desired;
pub mod distribution;
pub mod election;
mod exchange;
pub mod leader;
mod merge;
pub mod plan;
pub mod ports;
mod reach;
mod report;
mod reporter;
mod term;
mod write;

pub use actor::{StatusHandle, StatusReporterActor, Writing};
pub use cluster::{ClusterLease, ClusterReports, ClusterStatuses};
pub use distribution::{Distribution, Levels};
pub use election::Timing;
pub use exchange::{Exchange, Pace, ReportBoard, ReportStore};
pub use leader::{LeaderReport, Leadership, campaign};
pub use reach::Reach;
pub use report::Report;
pub use reporter::Reporter;
