//! The writing of statuses to the cluster, and the candidate for the lease.

use std::sync::Arc;

use futures::future::OptionFuture;
use tokio::task::JoinHandle;

use super::process::Process;
use crate::{
    discovery::XdsServerHandle,
    model::{PushRequest, Reason, XdsUpdater},
    registration::stands_for,
    sources::kube::KubeWriter,
    status::{
        ClusterLease, ClusterReports, ClusterStatuses, Exchange, Leadership, Pace, ReportBoard, StatusHandle,
        StatusReporterActor, Timing, Writing, campaign,
    },
    store::StoreHandle,
};

/// The statuses of all objects, and the candidate for the lease, which releases it when the shutdown begins.
pub(super) struct Statuses {
    pub(super) handle: StatusHandle,
    pub(super) candidate: Option<JoinHandle<()>>,
}

/// Starts the reporter of statuses, which writes them where a cluster takes them.
pub(super) fn start(process: &Process, store: &StoreHandle, xds: &XdsServerHandle, board: &ReportBoard) -> Statuses {
    let (writing, candidate) = stand(process, store, xds, board).unzip();
    Statuses { handle: StatusReporterActor::start(&process.supervision, xds.state().clone(), writing), candidate }
}

/// Starts a candidate for the lease of the cluster where statuses are to be written. It also publishes that this process is
/// alive: with its distribution report where distribution is counted, and without one where workloads register, whose entries
/// name it. The task ends after `shutdown` has begun, when the lease is released.
fn stand(
    process: &Process,
    store: &StoreHandle,
    xds: &XdsServerHandle,
    board: &ReportBoard,
) -> Option<(Writing, JoinHandle<()>)> {
    let Process { me, shutdown, cluster, .. } = process;
    let features = &process.inputs.features;
    let cluster = cluster.as_ref().filter(|c| c.settings().write_status)?;
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
