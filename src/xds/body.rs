//! gRPC over raw HTTP/2 bodies: requests are cut out of the request body, responses are handed to the transport as the
//! shared bytes that they are.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tonic::Status;

use super::wire::PREFIX;

/// Bytes of one request.
const MAX_REQUEST: usize = 4 << 20;

/// Cuts messages out of a request body.
pub(super) struct Requests {
    body: tonic::body::Body,
    buffer: BytesMut,
    ended: bool,
}

impl Requests {
    pub(super) fn new(body: tonic::body::Body) -> Self {
        Self { body, buffer: BytesMut::new(), ended: false }
    }

    /// The next message; `None` when the client has ended its side. Cancelling loses nothing.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = self.cut()? {
                return Ok(Some(message));
            }
            if self.ended {
                return Ok(None);
            }
            match self.body.frame().await {
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
        if length > MAX_REQUEST {
            return Err(Status::resource_exhausted(format!(
                "a request of {length} bytes is larger than {MAX_REQUEST} bytes"
            )));
        }
        if self.buffer.len() < PREFIX + length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX);
        let message = self.buffer.split_to(length).freeze();
        if self.buffer.is_empty() {
            // An idle stream holds no buffer.
            self.buffer = BytesMut::new();
        }
        Ok(Some(message))
    }
}

/// What goes to the transport.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// A message in one or two pieces. Boxed: the runtime's queue has room for 32 from the start, and most streams are idle.
    Message(Box<(Bytes, Option<Bytes>)>),
    /// The end of the stream.
    End(Status),
}

impl Outgoing {
    pub(super) fn message(first: Bytes, rest: Option<Bytes>) -> Self {
        Self::Message(Box::new((first, rest)))
    }
}

/// A response body that yields what the connection task hands over.
#[derive(Debug)]
pub(super) struct ResponseBody {
    messages: mpsc::Receiver<Outgoing>,
    rest: Option<Bytes>,
    ended: bool,
}

impl ResponseBody {
    pub(super) fn new(messages: mpsc::Receiver<Outgoing>) -> Self {
        Self { messages, rest: None, ended: false }
    }

    fn trailers(&mut self, status: &Status) -> Frame<Bytes> {
        self.ended = true;
        let mut trailers = http::HeaderMap::new();
        if status.add_header(&mut trailers).is_err() {
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
    use http_body_util::Full;

    use super::*;

    #[tokio::test]
    async fn messages_are_cut_wherever_frames_end() {
        let wire = b"\0\0\0\0\x03abc\0\0\0\0\0\0\0\0\0\x02de";
        let body = tonic::body::Body::new(Full::new(Bytes::from_static(wire)));
        let mut requests = Requests::new(body);
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
            assert_eq!(Requests::new(body).next().await.unwrap_err().code(), code);
        }
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
