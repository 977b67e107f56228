//! Workloads that register themselves: a WorkloadEntry for each proxy that names a WorkloadGroup, for as long as it is
//! connected (Istio's `autoregistration`).
//!
//! An entry is written where its group stands: to the cluster, from where it comes back by the watch, or into a source of
//! our own, so that machines outside of any cluster are found too. What is to be done is computed from values: who is
//! connected here, what is stored, what time it is. The actor carries it out, one entry at a time and each on the fresh
//! object.
//!
//! Invariants: who registers has proved to be of the entry's namespace and service account; an entry outlives its
//! connection by the grace period, so that a reconnect, to this process or to another one, leaves no gap; of two processes
//! the one that was connected to last has the entry, and who still holds a connection takes back an entry that the other
//! one let go; what a process leaves that was killed is let go by the one that writes statuses, when the lease of the dead
//! one has run out; what a health message says reaches the status, and nothing is written that stands there already. How many
//! may register is bounded by group and by peer. An entry of our own source is on disk, where a folder keeps it, before its
//! proxy is answered; a disk that does not take it delays the answer by a few seconds at most.

mod actor;
mod cleanup;
mod cluster;
mod crowd;
mod entry;
mod keeping;
mod ledger;
mod memory;
mod plan;
mod ports;
#[cfg(any(test, feature = "testing"))]
pub mod readers;
mod work;

pub use actor::{RegistrationActor, RegistrationHandle, Setup};
pub use cleanup::{Gone, stands_for};
pub use cluster::ClusterEntries;
pub use crowd::Limits;
pub use keeping::Keeping;
pub use memory::{MemoryEntries, SOURCE};
pub use ports::{EntryKey, EntryStore};
