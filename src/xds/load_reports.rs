//! Load reports (LRS): what clients counted of their own requests, by cluster. gRPC clusters name this server
//! (`lrs_server: self`); gRPC-Java limits concurrent requests only where it reports load.
//!
//! The numbers are kept in a table of bounded size and added to the metrics. They are what clients say, and nothing here
//! depends on them.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::{Ready, ready},
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{Request, Response};
use prost::Message;
use serde::Serialize;
use tokio::sync::mpsc;
use tonic::{Status, body::Body, server::NamedService};
use tower::Service;

use super::{
    accept,
    body::{Outgoing, Requests},
    clients::Turn,
    state::XdsState,
    wire,
};
use crate::proto::{
    envoy::{
        config::endpoint::v3::{ClusterStats, UpstreamLocalityStats},
        service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse},
    },
    wkt,
};

/// How often clients report.
const INTERVAL: Duration = Duration::from_secs(10);
/// A stream that reports nothing for so long is ended.
const SILENCE: Duration = Duration::from_secs(120);
/// Clusters in the table.
const MOST_CLUSTERS: usize = 4096;
/// Bytes of a cluster's name.
const LONGEST_NAME: usize = 512;

/// What clients reported of one cluster since the start of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ClusterLoad {
    /// Requests that were sent.
    pub issued: u64,
    /// Requests that succeeded.
    pub successful: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that were dropped before they were sent.
    pub dropped: u64,
    /// Reports.
    pub reports: u64,
    /// When the last report came.
    #[serde(serialize_with = "seconds")]
    pub at: Option<SystemTime>,
}

fn seconds<S: serde::Serializer>(at: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    let since = at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map(|since| since.as_secs()).serialize(serializer)
}

impl ClusterLoad {
    fn of(stats: &ClusterStats, at: SystemTime) -> Self {
        let sum = |count: fn(&UpstreamLocalityStats) -> u64| {
            stats.upstream_locality_stats.iter().map(count).fold(0, u64::saturating_add)
        };
        Self {
            issued: sum(|l| l.total_issued_requests),
            successful: sum(|l| l.total_successful_requests),
            failed: sum(|l| l.total_error_requests),
            dropped: stats.total_dropped_requests,
            reports: 1,
            at: Some(at),
        }
    }

    fn add(&mut self, other: &Self) {
        let add = |own: &mut u64, more: u64| *own = own.saturating_add(more);
        add(&mut self.issued, other.issued);
        add(&mut self.successful, other.successful);
        add(&mut self.failed, other.failed);
        add(&mut self.dropped, other.dropped);
        add(&mut self.reports, other.reports);
        self.at = other.at;
    }
}

/// What all clients reported.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Loads {
    /// By cluster.
    pub clusters: BTreeMap<String, ClusterLoad>,
    /// Clusters that had no place, taken together.
    pub others: ClusterLoad,
}

impl Loads {
    fn take(&mut self, stats: &ClusterStats, at: SystemTime) -> ClusterLoad {
        let load = ClusterLoad::of(stats, at);
        let known = self.clusters.contains_key(&stats.cluster_name);
        if known || (self.clusters.len() < MOST_CLUSTERS && stats.cluster_name.len() <= LONGEST_NAME) {
            self.clusters.entry(stats.cluster_name.clone()).or_default().add(&load);
        } else {
            self.others.add(&load);
        }
        load
    }
}

/// The table of the process.
#[derive(Debug, Default)]
pub(super) struct LoadTable(Mutex<Loads>);

impl LoadTable {
    pub(super) fn all(&self) -> Loads {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn take(&self, request: &LoadStatsRequest, at: SystemTime) {
        let mut sum = ClusterLoad::default();
        let mut loads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        request.cluster_stats.iter().for_each(|stats| sum.add(&loads.take(stats, at)));
        drop(loads);
        metrics::counter!("pilot_load_reports").increment(sum.reports);
        for (outcome, count) in [("success", sum.successful), ("error", sum.failed), ("dropped", sum.dropped)] {
            metrics::counter!("pilot_load_reported_requests", "outcome" => outcome).increment(count);
        }
    }
}

/// The service.
#[derive(Debug, Clone)]
pub(super) struct LoadReports(pub(super) XdsState);

impl NamedService for LoadReports {
    const NAME: &'static str = "envoy.service.load_stats.v3.LoadReportingService";
}

impl Service<Request<Body>> for LoadReports {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default();
        if method != "StreamLoadStats" {
            return ready(Ok(Status::unimplemented(format!("no method {method}")).into_http()));
        }
        let opened = match accept::open(request, self.0.options(), 1) {
            Ok(opened) => opened,
            Err(status) => return ready(Ok(status.into_http())),
        };
        tokio::spawn(serve(self.0.clone(), opened.turn, opened.requests, opened.outgoing));
        ready(Ok(opened.response))
    }
}

async fn serve(state: XdsState, mut turn: Turn, requests: Requests, outgoing: mpsc::Sender<Outgoing>) {
    let stopping = state.stopping();
    let status = tokio::select! {
        ended = take_reports(&state, &mut turn, requests, &outgoing) => ended.err().unwrap_or_else(|| Status::ok("")),
        () = stopping.cancelled() => Status::unavailable("the server is shutting down"),
        () = outgoing.closed() => return,
    };
    // A client that reads nothing gets no reason: the body is dropped with the sender.
    let _ = outgoing.try_send(Outgoing::End(status));
}

async fn take_reports(
    state: &XdsState,
    turn: &mut Turn,
    mut requests: Requests,
    outgoing: &mpsc::Sender<Outgoing>,
) -> Result<(), Status> {
    let first = next(&mut requests, state.options().first_request).await?;
    let Some(first) = first else { return Ok(()) };
    turn.opened();
    let named = first.node.as_ref().is_some_and(|node| !node.id.is_empty());
    if !named {
        return Err(Status::invalid_argument("missing node information"));
    }
    let (head, rest) = wire::grpc_frames(&[], Bytes::from(demand().encode_to_vec()));
    let _ = outgoing.send(Outgoing::message(head, rest)).await;
    let mut report = first;
    loop {
        state.loads().take(&report, SystemTime::now());
        match next(&mut requests, SILENCE).await? {
            Some(next) => report = next,
            None => return Ok(()),
        }
    }
}

async fn next(requests: &mut Requests, patience: Duration) -> Result<Option<LoadStatsRequest>, Status> {
    let message = tokio::time::timeout(patience, requests.next())
        .await
        .map_err(|_| Status::deadline_exceeded("no report came"))??;
    let decode = |message| LoadStatsRequest::decode(message);
    message.map(decode).transpose().map_err(|_| Status::invalid_argument("the report is not a protobuf message"))
}

/// What is asked of each client.
fn demand() -> LoadStatsResponse {
    LoadStatsResponse {
        send_all_clusters: true,
        load_reporting_interval: Some(wkt::Duration { seconds: INTERVAL.as_secs() as i64, nanos: 0 }),
        ..LoadStatsResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(cluster: &str, issued: u64, failed: u64) -> ClusterStats {
        let locality = UpstreamLocalityStats {
            total_issued_requests: issued,
            total_error_requests: failed,
            total_successful_requests: issued - failed,
            ..Default::default()
        };
        ClusterStats {
            cluster_name: cluster.into(),
            upstream_locality_stats: vec![locality.clone(), locality],
            total_dropped_requests: 1,
            ..Default::default()
        }
    }

    #[test]
    fn reports_are_added_up_by_cluster() {
        let table = LoadTable::default();
        let at = SystemTime::UNIX_EPOCH;
        let request =
            LoadStatsRequest { cluster_stats: vec![stats("a", 5, 2), stats("b", 1, 0)], ..Default::default() };
        table.take(&request, at);
        table.take(&request, at);
        let of_a = ClusterLoad { issued: 20, successful: 12, failed: 8, dropped: 2, reports: 2, at: Some(at) };
        assert_eq!(table.all().clusters["a"], of_a);
        assert_eq!(table.all().others, ClusterLoad::default());
    }

    #[test]
    fn clients_cannot_make_the_table_grow() {
        let mut loads = Loads::default();
        for number in 0..MOST_CLUSTERS * 2 {
            loads.take(&stats(&number.to_string(), u64::MAX / 2, 0), SystemTime::UNIX_EPOCH);
        }
        loads.take(&stats(&"x".repeat(LONGEST_NAME + 1), 1, 0), SystemTime::UNIX_EPOCH);
        assert_eq!(loads.clusters.len(), MOST_CLUSTERS);
        assert_eq!((loads.others.reports, loads.others.issued), (MOST_CLUSTERS as u64 + 1, u64::MAX));
    }
}
