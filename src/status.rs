//! What became of each object: computed here, shown at `/debug/statusz`.
//!
//! Statuses come from three places: the translation (Gateway API, Ingress), the distribution (which generation of an Istio
//! object all proxies hold, from their acknowledgements) and the allocator of addresses for ServiceEntries. All three are
//! pure; the actor looks at them a few times a second, and only computes when something moved. Invariants: a status never
//! runs ahead of what is in force; nothing here changes what a proxy gets.

pub mod actor;
mod addresses;
mod desired;
pub mod distribution;
#[allow(dead_code, reason = "writing is joined next")]
mod merge;
mod reporter;

pub use actor::{StatusHandle, StatusReporterActor};
pub use distribution::{Distribution, Levels, Reach};
pub use reporter::Reporter;
