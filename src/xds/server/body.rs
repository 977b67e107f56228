//! gRPC over raw HTTP/2 bodies: requests are cut out of the request body, responses are handed to the transport as the
//! shared bytes that they are.
//!
//! tonic's `Streaming` does not do this: the bytes of an unfinished request count against the bound of the connection, the
//! time from the first byte of a request to its last is limited, and a response is encoded once for all clients of a view.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::{sync::mpsc, time::Instant};
use tonic::Status;

use super::budget::Hold;
use crate::xds::wire::PREFIX;

/// Bytes of the reason for which a stream ends. It goes out in a header, whose size clients bound, and it may quote input of
/// the client.
const LONGEST_REASON: usize = 1024;

/// The size of the largest request of this process so far.
static LARGEST: AtomicUsize = AtomicUsize::new(0);

/// Bytes of the largest request so far, for `/metrics`.
#[must_use]
pub fn largest_request() -> usize {
    LARGEST.load(Ordering::Relaxed)
}

/// Cuts messages out of a request body.
pub(crate) struct Requests {
    body: tonic::body::Body,
    buffer: BytesMut,
    /// Bytes of one request.
    largest: usize,
    /// The time that a request may take from its first byte to its last.
    patience: Duration,
    /// When the request that has not come whole was begun.
    begun: Option<Instant>,
    /// Its bytes, as they count against the connection.
    hold: Hold,
    ended: bool,
}

impl Requests {
    /// Requests of at most `largest` bytes that come within `patience`; incomplete ones are counted in `hold`.
    pub(crate) fn new(body: tonic::body::Body, largest: usize, patience: Duration, hold: Hold) -> Self {
        Self { body, buffer: BytesMut::new(), largest, patience, begun: None, hold, ended: false }
    }

    /// The next message; `None` when the client has ended its side. Cancelling loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = self.cut()? {
                self.begun = None;
                return Ok(Some(message));
            }
            if self.ended {
                return Ok(None);
            }
            match self.frame().await? {
                None => self.ended = true,
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(Status::cancelled(error.message().to_string())),
            }
        }
    }

    /// The next frame, within the time of the request that it belongs to.
    async fn frame(&mut self) -> Result<Option<Result<Frame<Bytes>, Status>>, Status> {
        if self.buffer.is_empty() {
            self.hold.set(0);
            return Ok(self.body.frame().await);
        }
        if !self.hold.set(self.buffer.len()) {
            return Err(Status::resource_exhausted("too many bytes of requests that are not finished"));
        }
        let deadline = *self.begun.get_or_insert_with(Instant::now) + self.patience;
        let frame = tokio::time::timeout_at(deadline, self.body.frame()).await;
        frame.map_err(|_| Status::deadline_exceeded("a request was begun and not finished"))
    }

    fn cut(&mut self) -> Result<Option<Bytes>, Status> {
        let Some((flag, length)) = self.buffer.split_first_chunk::<PREFIX>().map(|([flag, length @ ..], _)| {
            let length: [u8; 4] = *length;
            (*flag, u32::from_be_bytes(length) as usize)
        }) else {
            return Ok(None);
        };
        if flag != 0 {
            return Err(Status::unimplemented("compressed requests are not supported"));
        }
        if length > self.largest {
            return Err(Status::resource_exhausted(format!(
                "a request of {length} bytes is larger than {} bytes",
                self.largest
            )));
        }
        if self.buffer.len() < PREFIX + length {
            return Ok(None);
        }
        LARGEST.fetch_max(length, Ordering::Relaxed);
        self.buffer.advance(PREFIX);
        let message = self.buffer.split_to(length).freeze();
        if self.buffer.is_empty() {
            // An idle stream holds no buffer.
            self.buffer = BytesMut::new();
        }
        Ok(Some(message))
    }
}

/// A message for the transport.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A message in one or two pieces. Boxed: the runtime's queue has room for 32 from the start, and most streams are idle.
    Message(Box<(Bytes, Option<Bytes>)>),
    /// The end of the stream.
    End(Status),
}

impl Outgoing {
    pub(crate) fn message(first: Bytes, rest: Option<Bytes>) -> Self {
        Self::Message(Box::new((first, rest)))
    }
}

/// The status as it goes out.
pub(in crate::xds) fn told(status: &Status) -> Status {
    let text = status.message();
    let end = (0..=text.len().min(LONGEST_REASON)).rev().find(|end| text.is_char_boundary(*end));
    let text = text.get(..end.unwrap_or_default()).unwrap_or_default();
    Status::with_metadata(status.code(), text, status.metadata().clone())
}

/// A response body that yields the bytes that the connection task hands over.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    messages: mpsc::Receiver<Outgoing>,
    rest: Option<Bytes>,
    ended: bool,
}

impl ResponseBody {
    pub(crate) fn new(messages: mpsc::Receiver<Outgoing>) -> Self {
        Self { messages, rest: None, ended: false }
    }

    fn trailers(&mut self, status: &Status) -> Frame<Bytes> {
        self.ended = true;
        let mut trailers = http::HeaderMap::new();
        if told(status).add_header(&mut trailers).is_err() {
            trailers.clear();
            trailers.insert("grpc-status", http::HeaderValue::from_static("13"));
        }
        Frame::trailers(trailers)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Some(rest) = self.rest.take() {
            return Poll::Ready(Some(Ok(Frame::data(rest))));
        }
        let frame = match self.messages.poll_recv(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Outgoing::Message(message))) => {
                let (first, rest) = *message;
                self.rest = rest;
                Frame::data(first)
            }
            Poll::Ready(Some(Outgoing::End(status))) => self.trailers(&status),
            Poll::Ready(None) => self.trailers(&Status::internal("the stream ended without a reason")),
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use http_body_util::{Full, StreamBody};

    use super::*;
    use crate::xds::server::budget::Budget;

    fn requests(body: tonic::body::Body, budget: &std::sync::Arc<Budget>) -> Requests {
        Requests::new(body, 4 << 20, Duration::from_secs(10), Hold::new(budget.share()))
    }

    #[tokio::test]
    async fn messages_are_cut_wherever_frames_end() {
        let wire = b"\0\0\0\0\x03abc\0\0\0\0\0\0\0\0\0\x02de";
        let body = tonic::body::Body::new(Full::new(Bytes::from_static(wire)));
        let mut requests = requests(body, &Budget::new(1 << 20, 1 << 20));
        let mut got = Vec::new();
        while let Some(message) = requests.next().await.unwrap() {
            got.push(message);
        }
        assert_eq!(got, [&b"abc"[..], b"", b"de"]);
    }

    #[tokio::test]
    async fn too_much_and_compressed_is_refused() {
        for (wire, code) in [
            (&[0u8, 0x7f, 0, 0, 0][..], tonic::Code::ResourceExhausted),
            (&[1u8, 0, 0, 0, 0][..], tonic::Code::Unimplemented),
        ] {
            let body = tonic::body::Body::new(Full::new(Bytes::from_static(wire)));
            let refused = requests(body, &Budget::new(1 << 20, 1 << 20)).next().await;
            assert_eq!(refused.unwrap_err().code(), code);
        }
    }

    /// A body that is written to by hand.
    fn by_hand() -> (mpsc::Sender<Bytes>, tonic::body::Body) {
        let (bytes, frames) = mpsc::channel(4);
        let frames =
            tokio_stream::wrappers::ReceiverStream::new(frames).map(|data| Ok::<_, Infallible>(Frame::data(data)));
        (bytes, tonic::body::Body::new(StreamBody::new(frames)))
    }

    #[tokio::test]
    async fn a_request_that_is_begun_has_to_be_finished() {
        let budget = Budget::new(1 << 20, 1 << 20);
        let (bytes, body) = by_hand();
        let mut requests = Requests::new(body, 4 << 20, Duration::from_millis(100), Hold::new(budget.share()));
        bytes.send(Bytes::from_static(b"\0\0\0\0\x03abc\0\0\x0f\0\x09de")).await.unwrap();
        assert_eq!(requests.next().await.unwrap().unwrap(), "abc");
        // More bytes do not buy more time, and neither does asking again.
        let refused = loop {
            match tokio::time::timeout(Duration::from_millis(10), requests.next()).await {
                Err(_) => bytes.send(Bytes::from_static(b"f")).await.unwrap(),
                Ok(ended) => break ended,
            }
            assert!(budget.held() >= 5 + 2);
        };
        assert_eq!(refused.unwrap_err().code(), tonic::Code::DeadlineExceeded);
        drop(requests);
        assert_eq!(budget.held(), 0);
    }

    #[tokio::test]
    async fn unfinished_messages_are_bounded() {
        let budget = Budget::new(100, 10);
        let share = budget.share();
        let mut ends = Vec::new();
        for _ in 0..2 {
            let (bytes, body) = by_hand();
            bytes.send(Bytes::from_static(b"\0\0\0\0\x09a")).await.unwrap();
            let mut requests = Requests::new(body, 100, Duration::from_secs(10), Hold::new(share.clone()));
            let first = futures::poll!(std::pin::pin!(requests.next()));
            ends.push((bytes, requests, first));
        }
        let refused = |first: &Poll<Result<_, Status>>| matches!(first, Poll::Ready(Err(s)) if s.code() == tonic::Code::ResourceExhausted);
        assert_eq!(ends.iter().map(|(_, _, first)| refused(first)).collect::<Vec<_>>(), [false, true]);
    }

    #[tokio::test]
    async fn a_reason_with_any_quote_fits_into_a_header() {
        let (tx, rx) = mpsc::channel(4);
        tx.send(Outgoing::End(Status::invalid_argument("é\"".repeat(100_000)))).await.unwrap();
        let collected = ResponseBody::new(rx).collect().await.unwrap();
        let trailers = collected.trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "3");
        assert!(trailers["grpc-message"].len() <= 4 * LONGEST_REASON, "{}", trailers["grpc-message"].len());
    }

    #[tokio::test]
    async fn a_body_ends_with_its_status() {
        let (tx, rx) = mpsc::channel(4);
        tx.send(Outgoing::message(Bytes::from_static(b"a"), Some(Bytes::from_static(b"b")))).await.unwrap();
        tx.send(Outgoing::End(Status::unavailable("later"))).await.unwrap();
        let collected = ResponseBody::new(rx).collect().await.unwrap();
        assert_eq!(collected.trailers().unwrap()["grpc-status"], "14");
        assert_eq!(collected.to_bytes(), "ab");
    }
}
