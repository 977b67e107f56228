//! Where statuses are written, and who stands for the lease.

use std::{
    env,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use tokio::task::JoinHandle;

use crate::{
    runtime::Shutdown,
    sources::kube::{Cluster, KubeWriter},
    status::{ClusterLease, ClusterStatuses, Leadership, Timing, Writing, campaign},
};

/// Stands for the lease of the cluster, where statuses are to be written. The task ends after `shutdown` has begun, when
/// the lease is given back.
pub(super) fn stand(
    cluster: Option<&Arc<Cluster>>,
    me: &str,
    shutdown: &Shutdown,
) -> Option<(Writing, JoinHandle<()>)> {
    let cluster = cluster.filter(|c| c.settings().write_status)?;
    let settings = cluster.settings();
    let name = match settings.revision.as_str() {
        "" | "default" => "pilothouse-leader".to_string(),
        revision => format!("pilothouse-leader-{revision}"),
    };
    let timing = Timing { lease: settings.lease.duration, renew: settings.lease.renew, look: settings.lease.look };
    let writer = KubeWriter::new(cluster.clone());
    let leadership = Leadership::default();
    let lease = Arc::new(ClusterLease { writer: writer.clone(), name });
    let candidate = tokio::spawn(campaign(lease, me.to_string(), timing, leadership.clone(), shutdown.child()));
    Some((Writing { sink: Arc::new(ClusterStatuses(writer)), leadership }, candidate))
}

/// The name of this process: the pod, or the host, and something that no other process of it has.
pub(super) fn identity() -> String {
    let host = ["POD_NAME", "HOSTNAME"].iter().find_map(|name| env::var(name).ok()).filter(|name| !name.is_empty());
    let host = host.unwrap_or_else(|| "pilothouse".to_string());
    format!("{host}_{:016x}", RandomState::new().hash_one(std::process::id()))
}
