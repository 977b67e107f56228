//! What became of each object: computed here, shown at `/debug/statusz`.
//!
//! Statuses come from three places: the translation (Gateway API, Ingress), the distribution (which generation of an Istio
//! object all proxies hold, from their acknowledgements) and the allocator of addresses for ServiceEntries. All three are
//! pure; the actor looks at them a few times a second, and only computes when something moved.
//!
//! They are written to the cluster that the objects come from by the process that holds the lease. Invariants: a status
//! never runs ahead of what is in force; for one generation it never goes back, whoever writes; equal status is not written; a write never undoes what somebody else wrote
//! meanwhile; whoever undoes ours makes us slower, not louder; nobody writes without the lease.

pub mod actor;
mod addresses;
pub mod cluster;
mod desired;
pub mod distribution;
pub mod election;
mod exchange;
pub mod leader;
mod merge;
pub mod plan;
pub mod ports;
mod report;
mod reporter;
mod term;
mod write;

pub use actor::{StatusHandle, StatusReporterActor, Writing};
pub use cluster::{ClusterLease, ClusterReports, ClusterStatuses};
pub use distribution::{Distribution, Levels, Reach};
pub use election::Timing;
pub use exchange::{Exchange, Pace, ReportBoard, ReportStore};
pub use leader::{LeaderReport, Leadership, campaign};
pub use report::Report;
pub use reporter::Reporter;
