//! Readers of nodes, load reports and debug questions of clients, as functions, for tests that feed them any bytes: those that are
//! private to this room.
//!
//! Built for tests only. Nothing here decides anything.

use std::time::SystemTime;

use prost::Message;
use tonic::Status;

use super::{
    DebugQuestion, Loads, claimant,
    debug::{DebugAudience, Questions},
    loads::LoadTable,
};
use crate::{
    model::{Identity, Node},
    proto::envoy::service::load_stats::v3::LoadStatsRequest,
    xds::{Protocol, wire::request::Request},
};

/// The node of a first request.
///
/// # Errors
/// The status that ends the stream.
pub fn node(request: &Request<'_>) -> Result<Node, Status> {
    claimant::read_node(request)
}

/// The table after these load reports.
///
/// # Errors
/// Bytes that are no report.
pub fn loads<'a>(reports: impl Iterator<Item = &'a [u8]>) -> Result<Loads, prost::DecodeError> {
    let table = LoadTable::default();
    for report in reports {
        table.take(&LoadStatsRequest::decode(report)?, SystemTime::UNIX_EPOCH);
    }
    Ok(table.all())
}

/// The questions that requests for debug pages ask on one stream, and the status that ends it.
#[must_use]
pub fn questions<'a>(
    protocol: Protocol,
    requests: impl Iterator<Item = &'a [u8]>,
    identity: Option<&Identity>,
) -> (Vec<DebugQuestion>, Option<Status>) {
    let (mut questions, mut ended) = (Questions::default(), None);
    let audience = DebugAudience { root: "istio-system".to_string(), ..DebugAudience::default() };
    for message in requests {
        let request = match protocol {
            Protocol::Sotw => Request::sotw(message),
            Protocol::Delta => Request::delta(message),
        };
        let asked = request.map_err(|e| Status::invalid_argument(e.to_string()));
        if let Err(status) = asked.and_then(|r| questions.ask(&r, identity, &audience)) {
            ended = Some(status);
            break;
        }
    }
    (std::iter::from_fn(|| questions.next()).collect(), ended)
}
