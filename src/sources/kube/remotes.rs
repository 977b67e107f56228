//! Remote clusters that are reached by a kubeconfig: those of the command line, and those that Secrets or files name while
//! the process runs.
//!
//! Each cluster has sources of its own, which are actors of their own. `actor` owns the set of clusters, `set` says how
//! it changes, `followed` is one cluster and the set as others read it.
//!
//! Invariants: a cluster that does not answer at the start is left out, as in Istio, until it delivers; a fault of the actor
//! neither stops the sources of a cluster nor starts one twice; the set that the Secrets name is handed over until it was
//! taken, so no change of them is lost.

mod actor;
mod followed;
mod set;

pub use actor::{RemoteClustersActor, RemoteClustersHandle};
pub use followed::{ClusterStatus, RemoteClusters, SyncStatus};
pub use set::{MainCluster, RemoteSetup};
