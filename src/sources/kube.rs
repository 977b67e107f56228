//! The live Kubernetes sources: one supervised source for each group of kinds of a cluster, all over one [`Cluster`].
//!
//! `watch` follows one kind (list, watch, pace, reactions to errors), `content` keeps its objects (pure), `feed` joins the
//! two for a kind of objects, `source` delivers the changes. All feeds of a cluster share `crds` and `namespaces`; `mesh`
//! reads the mesh settings of the cluster, `remote` the Secrets that name other clusters, `remote_files` the kubeconfigs of
//! a folder that do, and `remotes` owns the clusters that they name.
//!
//! Invariants: content is swapped at the end of a list and never emptied by an outage, an expired version, a relist, a
//! restart, a CRD that is deleted or a right that is taken away; one bad object is refused by name and its last good version
//! stays; a kind that may not be read stops nothing else. No secret is ever logged or put into a report.

pub mod access;
mod admit;
mod answers;
mod ca_objects;
mod cluster;
mod connect;
pub mod content;
mod crds;
mod feed;
mod feed_log;
mod follower;
mod groups;
mod mesh;
mod namespaces;
mod objects;
mod once;
mod presence;
mod raw;
mod read;
#[cfg(any(test, feature = "testing"))]
pub mod readers;
mod remote;
mod remote_files;
mod remotes;
mod reports;
mod reviews;
mod source;
mod status;
mod wanted;
mod watch;
mod watch_error;
mod write;

pub use ca_objects::{CRL_MAP, MapPlace, ROOT_CERT_MAP, SecretContent};
pub use cluster::Cluster;
pub use connect::{ConnectError, check_access};
pub use groups::Group;
pub use mesh::{KubeMesh, mesh_values, saved_mesh_values};
pub use objects::ObjectRef;
pub use once::{Listing, Unlisted, list_once};
pub use raw::RawObject;
pub use remote::{RemoteClusterSink, RemoteSecrets};
pub use remote_files::RemoteFiles;
pub use remotes::{
    ClusterStatus, MainCluster, RemoteClusters, RemoteClustersActor, RemoteClustersHandle, RemoteSetup, SyncStatus,
};
pub use reports::ReportLease;
pub use reviews::TokenVerdict;
pub use source::KubeSource;
pub use status::{FeedReport, FeedState};
pub use wanted::{Wanted, WantedCluster};
pub use write::{KubeWriter, LeaseRecord};
