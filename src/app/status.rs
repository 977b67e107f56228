//! The writing of statuses to the cluster, and the candidate for the lease.

use std::{
    env,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use futures::future::OptionFuture;
use tokio::task::JoinHandle;

use crate::{
    discovery::XdsServerHandle,
    model::{Features, PushRequest, Reason, XdsUpdater},
    registration::stands_for,
    runtime::Shutdown,
    sources::kube::{Cluster, KubeWriter},
    status::{
        ClusterLease, ClusterReports, ClusterStatuses, Exchange, Leadership, Pace, ReportBoard, Timing, Writing,
        campaign,
    },
    store::StoreHandle,
};

/// Starts a candidate for the lease of the cluster where statuses are to be written. It also publishes that this process is
/// alive: with its distribution report where distribution is counted, and without one where workloads register, whose entries
/// name it. The task ends after `shutdown` has begun, when the lease is released.
pub(super) fn stand(
    cluster: Option<&Arc<Cluster>>,
    me: &str,
    (store, xds, board): (&StoreHandle, &XdsServerHandle, &ReportBoard),
    features: &Features,
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
    let elected = features.enable_leader_election;
    let leadership = if elected { Leadership::default() } else { Leadership::unopposed(me) };
    let lease = Arc::new(ClusterLease { writer: writer.clone(), name });
    let standing = campaign(lease, me.to_string(), timing, leadership.clone(), shutdown.child());
    let standing = OptionFuture::from(elected.then_some(standing));
    let counts = features.enable_status;
    let registers = features.enable_workload_entry_autoregistration || features.enable_workload_entry_healthchecks;
    let entries = store.clone();
    let exchange = (counts || registers).then(|| Exchange {
        store: Arc::new(ClusterReports { writer: writer.clone(), revision: settings.revision.clone() }),
        me: me.to_string(),
        leadership: leadership.clone(),
        board: board.clone(),
        pace: Pace::of(timing.lease),
        in_use: Arc::new(move |process| stands_for(&entries.snapshot(), process)),
    });
    let living = exchange.map(|exchange| exchange.run(shutdown.child()));
    let candidate = tokio::spawn(async move {
        tokio::join!(standing, OptionFuture::from(living));
    });
    let (store, xds) = (store.clone(), xds.clone());
    let writing = Writing {
        sink: Arc::new(ClusterStatuses(writer)),
        leadership,
        board: counts.then(|| board.clone()),
        snapshots: Arc::new(move || store.snapshot()),
        publish: Arc::new(move || xds.config_update(PushRequest::quiet(Reason::Config))),
    };
    Some((writing, candidate))
}

/// The unique name of this process: its pod, or its host with a random part.
pub(super) fn identity() -> String {
    let host = ["POD_NAME", "HOSTNAME"].iter().find_map(|name| env::var(name).ok()).filter(|name| !name.is_empty());
    let host = host.unwrap_or_else(|| "pilothouse".to_string());
    format!("{host}_{:016x}", RandomState::new().hash_one(std::process::id()))
}

/// The name of this process for users: the pod, or else its identity.
pub(super) fn instance(identity: &str) -> String {
    env::var("POD_NAME").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| identity.to_string())
}
