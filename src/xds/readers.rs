//! The framing of requests and of the status that ends a stream, as functions, for tests that feed them any bytes: both are
//! private to this room.
//!
//! Built for tests only. Nothing here decides anything.

use std::{
    io,
    sync::{Arc, LazyLock},
    time::Duration,
};

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::runtime::{Builder, Runtime};
use tonic::Status;

use super::{
    server::{
        body::{self, Requests},
        budget::{Budget, Hold},
    },
    views::claims::KnownClaims,
    wire::request::{Request, RequestError},
};

/// Bodies are read on a runtime, which brings the deadlines.
static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| Builder::new_current_thread().enable_time().build());

/// Names of the resources that a delta request says that its client holds.
///
/// # Errors
/// Entries that are malformed or too many.
pub fn claimed(request: &Request<'_>) -> Result<Vec<Arc<str>>, RequestError> {
    let claims = KnownClaims::default().read(&request.initial_versions()?)?;
    Ok(claims.map_or_else(Vec::new, |claims| claims.names().names().to_vec()))
}

/// A status as it goes out.
#[must_use]
pub fn told(status: &Status) -> Status {
    body::told(status)
}

/// The messages of a request body that comes in these pieces, each of at most `largest` bytes, and the error that ended it.
#[must_use]
pub fn messages(pieces: Vec<Bytes>, largest: usize) -> (Vec<Bytes>, Option<Status>) {
    let frames = stream::iter(pieces.into_iter().map(|piece| Ok::<_, std::convert::Infallible>(Frame::data(piece))));
    let body = tonic::body::Body::new(StreamBody::new(frames));
    let hold = Hold::new(Budget::new(usize::MAX >> 1, usize::MAX >> 1).share());
    let mut requests = Requests::new(body, largest, Duration::from_secs(10), hold);
    let runtime = match &*RUNTIME {
        Ok(runtime) => runtime,
        Err(error) => return (Vec::new(), Some(Status::internal(error.to_string()))),
    };
    let mut all = Vec::new();
    let ended = runtime.block_on(async {
        loop {
            match requests.next().await {
                Ok(Some(message)) => all.push(message),
                Ok(None) => return None,
                Err(status) => return Some(status),
            }
        }
    });
    (all, ended)
}
