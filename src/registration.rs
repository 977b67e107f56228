//! Workloads that register themselves: a WorkloadEntry for each proxy that names a WorkloadGroup, for as long as it is
//! connected (Istio's `autoregistration`).
//!
//! An entry is written to its group's place: to the cluster, from where it comes back by the watch, or into a source of our
//! own, so that machines outside of any cluster are found too. The next step is computed from values: the connections of
//! this process, the stored entry, the time. The actor carries it out, one entry at a time and each on the fresh object.
//!
//! Invariants: a registering proxy has proved to be of the entry's namespace and service account; an entry outlives its
//! connection by the grace period, so that a reconnect, to this process or to another one, leaves no gap; of two processes
//! the one with the latest connection has the entry, and a process that still holds a connection takes back an entry that
//! the other one released; after a process was killed, the leader releases its entries once its lease has expired; health
//! reports reach the status, and an equal status is not written. The number of registrations is bounded by group and by
//! peer. An entry of our own source is on disk, where a folder keeps it, before its proxy is answered; a disk that does not
//! accept it delays the answer by a few seconds at most.

mod actor;
mod cleanup;
mod cluster;
mod counts;
mod entry;
mod keeping;
mod memory;
mod plan;
mod ports;
#[cfg(any(test, feature = "testing"))]
pub mod readers;
mod registrations;
mod session;
mod setup;
mod work;

pub use actor::{RegistrationActor, RegistrationHandle};
pub use cleanup::{Gone, stands_for};
pub use cluster::ClusterEntries;
pub use counts::Limits;
pub use keeping::Keeping;
pub use memory::{MemoryEntries, SOURCE};
pub use ports::{EntryKey, EntryStore};
pub use setup::Setup;
