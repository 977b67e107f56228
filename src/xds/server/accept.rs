//! Accepting connections and their streams: a listener that outlives every fault of the system, and sockets that do not wait for ever.
//!
//! A peer that does not speak HTTP/2 within [`XdsOptions::preface`] is closed. Out of file descriptors, the listener waits
//! longer each time and says so in one line; it never spins and never ends.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use http::{HeaderValue, Request, Response, header};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpSocket, TcpStream, ToSocketAddrs},
    sync::mpsc,
    time::Sleep,
};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::{
    Status,
    body::Body,
    transport::server::{Connected, TcpIncoming},
};

use super::{
    body::{Outgoing, Requests, ResponseBody},
    clients::{Client, Clients, Turn},
    options::XdsOptions,
};
use crate::telemetry::LogThrottle;

/// The first thing that an HTTP/2 client sends has so many bytes (RFC 9113, section 3.4).
const PREFACE: usize = 24;

/// A pause after the first connection that cannot be accepted, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// The time that streams have to end after their connection has reached its greatest age.
const AGE_GRACE: Duration = Duration::from_secs(10);

/// A connection.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    clients: Arc<Clients>,
    client: Arc<Client>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    /// When it ends whatever it does: first for want of a preface, then of old age.
    deadline: Option<Pin<Box<Sleep>>>,
    read: usize,
    greatest_age: Option<Duration>,
}

/// A connection, as its requests know it.
#[derive(Debug, Clone)]
pub(crate) struct Peer(pub(crate) Arc<Client>);

/// Connections as they come.
pub(crate) fn incoming(
    listener: TcpListener,
    options: &XdsOptions,
    clients: Arc<Clients>,
) -> impl Stream<Item = io::Result<Socket>> + use<> {
    let sockets = TcpIncoming::from(listener).with_nodelay(Some(true)).with_keepalive(Some(Duration::from_secs(30)));
    let (preface, greatest_age) = (options.preface, options.max_connection_age);
    let door = Door { sockets, pause: PAUSES.0, failed: LogThrottle::default(), full: LogThrottle::default() };
    stream::unfold((door, clients), move |(mut door, clients)| async move {
        loop {
            let stream = door.next().await?;
            let Some(client) = clients.enter(stream.peer_addr().ok()) else {
                metrics::counter!("pilothouse_xds_connections_refused").increment(1);
                if let Some(times) = door.full.note(1) {
                    tracing::warn!(times, connections = clients.count(), "no room for another connection");
                }
                continue;
            };
            let socket = Socket {
                stream,
                clients: clients.clone(),
                closed: Box::pin(client.close.clone().cancelled_owned()),
                client,
                deadline: Some(Box::pin(tokio::time::sleep(preface))),
                read: 0,
                greatest_age,
            };
            return Some((Ok(socket), (door, clients)));
        }
    })
}

/// Clients that may wait to be accepted: a fleet that comes back at once. With the default of 128 the system
/// drops connections that their clients believe to be open. The system's own bound (`net.core.somaxconn`) still holds.
const BACKLOG: u32 = 4096;

/// A listening socket, on the first of the address's meanings that can be had.
///
/// # Errors
/// When the address means nothing, or none of its meanings can be had.
pub async fn listen(address: impl ToSocketAddrs) -> std::io::Result<TcpListener> {
    let mut failure = std::io::Error::new(std::io::ErrorKind::InvalidInput, "the address means no socket address");
    for address in tokio::net::lookup_host(address).await? {
        match listen_on(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn listen_on(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // As the standard library does: a restart need not wait for the connections of the process before.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The end of a stream whose connection gets too old. Streams end one after another, so that clients do not come back at once.
pub(crate) fn old_age(options: &XdsOptions, client: &Client, number: u64) -> Option<Pin<Box<Sleep>>> {
    const SLOTS: u64 = 16;
    let age = options.max_connection_age?;
    let wait = AGE_GRACE * (number % SLOTS + 1) as u32 / SLOTS as u32;
    Some(Box::pin(tokio::time::sleep_until((client.since + age + wait).into())))
}

struct Door {
    sockets: TcpIncoming,
    pause: Duration,
    failed: LogThrottle,
    full: LogThrottle,
}

impl Door {
    async fn next(&mut self) -> Option<TcpStream> {
        loop {
            match self.sockets.next().await? {
                Ok(stream) => {
                    self.pause = PAUSES.0;
                    return Some(stream);
                }
                // A client that is gone before it is accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    if let Some(times) = self.failed.note(1) {
                        tracing::warn!(%error, times, "a connection cannot be accepted");
                    }
                    tokio::time::sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(PAUSES.1);
                }
            }
        }
    }
}

impl Connected for Socket {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        Peer(self.client.clone())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.clients.leave(&self.client);
    }
}

impl Socket {
    /// The error that ends the connection from our side, if it is due.
    fn ended(&mut self, context: &mut Context<'_>) -> Option<io::Error> {
        if self.closed.as_mut().poll(context).is_ready() {
            return Some(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection makes room for another"));
        }
        let ended = self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(context).is_ready());
        ended.then(|| io::Error::new(io::ErrorKind::TimedOut, "the connection has reached its time"))
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, into);
        if polled.is_ready() && self.read < PREFACE {
            self.read += into.filled().len() - before;
            if self.read >= PREFACE {
                let age = self.greatest_age.map(|age| age + AGE_GRACE * 2);
                self.deadline = age.map(|age| Box::pin(tokio::time::sleep(age)));
            }
        }
        match polled {
            Poll::Ready(done) => Poll::Ready(done),
            Poll::Pending => self.ended(context).map_or(Poll::Pending, |error| Poll::Ready(Err(error))),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The answer to a call that begins a stream, or refuses it.
pub(crate) fn answer(begun: Result<Response<Body>, Status>) -> Ready<Result<Response<Body>, Infallible>> {
    ready(Ok(begun.unwrap_or_else(Status::into_http)))
}

/// A stream that begins: its place in the connection, its requests, and the response that carries the messages for the client.
pub(crate) struct Opened {
    pub(crate) turn: Turn,
    pub(crate) requests: Requests,
    pub(crate) outgoing: mpsc::Sender<Outgoing>,
    pub(crate) response: Response<Body>,
}

/// Begins a stream over raw bodies, within the limits of its connection. `queued` messages may wait for the transport.
pub(crate) fn open(request: Request<Body>, options: &XdsOptions, queued: usize) -> Result<Opened, Status> {
    let turn = request.extensions().get::<Peer>().and_then(|peer| peer.0.begin()).ok_or_else(|| {
        Status::resource_exhausted("too many streams of this connection have not asked for anything yet")
    })?;
    let requests =
        Requests::new(request.into_body(), options.max_request_bytes, options.whole_request, turn.unfinished());
    let (outgoing, messages) = mpsc::channel(queued);
    let mut response = Response::new(Body::new(ResponseBody::new(messages)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(Opened { turn, requests, outgoing, response })
}
