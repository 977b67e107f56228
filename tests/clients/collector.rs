//! A collector: takes whatever is sent to it over HTTP/1.1, HTTP/2 or gRPC, message by message, and says yes.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    thread,
};

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    HeaderMap, Request, Response,
    body::{Body, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};

/// One message: a body of HTTP, or one message of a gRPC call.
#[derive(Debug, Clone)]
pub struct Received {
    pub path: String,
    pub headers: HeaderMap,
    pub message: Bytes,
}

/// The server, in a thread to the end of the process.
pub struct Collector {
    pub port: u16,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Collector {
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let into = received.clone();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { serve(tokio::net::TcpListener::from_std(listener).unwrap(), into).await });
        });
        Self { port, received }
    }

    /// The messages to a path so far.
    pub fn to(&self, path: &str) -> Vec<Received> {
        self.received.lock().unwrap().iter().filter(|r| r.path == path).cloned().collect()
    }
}

async fn serve(listener: tokio::net::TcpListener, into: Arc<Mutex<Vec<Received>>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let into = into.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| take(request, into.clone()));
            let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn take(
    request: Request<Incoming>,
    into: Arc<Mutex<Vec<Received>>>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let (head, mut body) = request.into_parts();
    let is_grpc = head.headers.get("content-type").is_some_and(|t| t.as_bytes().starts_with(b"application/grpc"));
    let note = |message: Bytes| {
        let (path, headers) = (head.uri.path().to_string(), head.headers.clone());
        into.lock().unwrap().push(Received { path, headers, message });
    };
    let mut buffer = BytesMut::new();
    while !body.is_end_stream() {
        let Some(Ok(frame)) = body.frame().await else { break };
        buffer.extend(frame.into_data().unwrap_or_default());
        // A stream may have no end: its messages count as they come.
        while let Some(length) = length(&buffer).filter(|_| is_grpc) {
            buffer.advance(5);
            note(buffer.split_to(length).freeze());
        }
    }
    if !is_grpc {
        note(buffer.freeze());
        return Ok(Response::builder().status(202).body(Full::new(Bytes::new()).boxed()).unwrap());
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    let empty = Full::new(Bytes::from_static(&[0; 5])).with_trailers(std::future::ready(Some(Ok(trailers))));
    Ok(Response::builder().header("content-type", "application/grpc").body(empty.boxed()).unwrap())
}

/// The length of the first message, if it is there as a whole.
fn length(buffer: &[u8]) -> Option<usize> {
    let [_, a, b, c, d, rest @ ..] = buffer else { return None };
    Some(u32::from_be_bytes([*a, *b, *c, *d]) as usize).filter(|length| rest.len() >= *length)
}
