//! Load reports (LRS): the counts that clients keep of their own requests, by cluster. gRPC clusters name this server
//! (`lrs_server: self`); gRPC-Java limits concurrent requests only where it reports load.
//!
//! The numbers are kept in a table of bounded size and added to the metrics. They are claims of clients, and nothing here
//! depends on them.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use prost::Message;
use tokio::sync::mpsc;
use tonic::{Status, body::Body};

use super::{
    claimant::{presented, unauthenticated},
    state::XdsState,
};
use crate::{
    identity::{Authenticator, Presented},
    proto::{
        envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse},
        wkt,
    },
    xds::{self, Calls, Outgoing, Requests, Turn, wire},
};

/// The interval of reports.
const INTERVAL: Duration = Duration::from_secs(10);
/// A stream that reports nothing for so long is ended.
const SILENCE: Duration = Duration::from_secs(120);
/// The service.
#[derive(Debug, Clone)]
pub(super) struct LoadReports {
    pub(super) state: XdsState,
    /// Proves the identities of clients over TLS: no other is listened to there.
    pub(super) authenticator: Option<Authenticator>,
}

impl Calls for LoadReports {
    const SERVICE: &'static str = "envoy.service.load_stats.v3.LoadReportingService";

    fn begin(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let method = xds::method(&request);
        if method != "StreamLoadStats" {
            return Err(Status::unimplemented(format!("no method {method}")));
        }
        let presented = presented(&request);
        let opened = xds::open(request, self.state.options(), 1)?;
        tokio::spawn(serve(self.clone(), presented, opened.turn, opened.requests, opened.outgoing));
        Ok(opened.response)
    }
}

async fn serve(
    service: LoadReports,
    presented: Presented,
    mut turn: Turn,
    requests: Requests,
    outgoing: mpsc::Sender<Outgoing>,
) {
    let stopping = service.state.stopping();
    let status = tokio::select! {
        ended = service.take_reports(presented, &mut turn, requests, &outgoing) => ended.err().unwrap_or_else(|| Status::ok("")),
        () = stopping.cancelled() => Status::unavailable("the server is shutting down"),
        () = outgoing.closed() => return,
    };
    // A client that reads nothing gets no reason: the body is dropped with the sender.
    let _ = outgoing.try_send(Outgoing::End(status));
}

impl LoadReports {
    async fn take_reports(
        &self,
        presented: Presented,
        turn: &mut Turn,
        mut requests: Requests,
        outgoing: &mpsc::Sender<Outgoing>,
    ) -> Result<(), Status> {
        let state = &self.state;
        let mut lapse = futures::future::pending().boxed();
        if let Some(authenticator) = &self.authenticator {
            let proof = authenticator.admit_to_xds(presented).await.map_err(|error| unauthenticated(&error))?;
            lapse = authenticator.lapse(&proof);
        }
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
            tokio::select! {
                reason = &mut lapse => return Err(Status::unauthenticated(reason)),
                came = next(&mut requests, SILENCE) => match came? {
                    Some(next) => report = next,
                    None => return Ok(()),
                },
            }
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

/// The request to each client.
fn demand() -> LoadStatsResponse {
    LoadStatsResponse {
        send_all_clusters: true,
        load_reporting_interval: Some(wkt::Duration { seconds: INTERVAL.as_secs() as i64, nanos: 0 }),
        ..LoadStatsResponse::default()
    }
}
