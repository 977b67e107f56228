//! Accepting connections and their streams: a listener that outlives every fault of the system, and sockets that do not wait for ever.
//!
//! A peer that does not speak HTTP/2 within [`XdsOptions::preface`] is closed. Out of file descriptors, the listener waits
//! longer each time and says so in one line; it never spins and never ends. A TLS handshake has the same time, beside others.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use http::{HeaderValue, Request, Response, header};
use rustls_pki_types::CertificateDer;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpSocket, TcpStream, ToSocketAddrs, UnixStream},
    sync::{mpsc, watch},
    time::Sleep,
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig, server::TlsStream};
use tokio_stream::wrappers::UnixListenerStream;
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
    unix::UnixSocket,
};
use crate::telemetry::LogThrottle;

/// The first thing that an HTTP/2 client sends has so many bytes (RFC 9113, section 3.4).
const PREFACE: usize = 24;

/// A pause after the first connection that cannot be accepted, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// The time that streams have to end after their connection has reached its greatest age.
const AGE_GRACE: Duration = Duration::from_secs(10);

/// Connections whose handshake is done and that wait to be taken up.
const SHAKEN: usize = 64;

/// The bytes of a connection.
#[derive(Debug)]
enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

/// A place among the connections, given back when it is dropped.
#[derive(Debug)]
struct Place {
    clients: Arc<Clients>,
    client: Arc<Client>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clients.leave(&self.client);
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Transport,
    place: Place,
    /// The client's side of TLS.
    tls: Option<Arc<PeerTls>>,
    /// The user behind a Unix socket.
    user: Option<u32>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    /// When it ends whatever it does: first for want of a preface, then of old age.
    deadline: Option<Pin<Box<Sleep>>>,
    read: usize,
    greatest_age: Option<Duration>,
}

/// The client's side of a TLS connection.
#[derive(Debug)]
pub struct PeerTls {
    /// Its certificate, if it has shown one; it is signed by a root that the listener was given.
    pub certificate: Option<CertificateDer<'static>>,
    /// The certificates that lead from it to its root.
    pub intermediates: Vec<CertificateDer<'static>>,
}

/// A connection, as its requests know it.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) client: Arc<Client>,
    /// The client's side of TLS; `None` for plain text.
    pub(crate) tls: Option<Arc<PeerTls>>,
    /// The user of this machine that it belongs to, where it came over a Unix socket.
    pub(crate) user: Option<u32>,
}

/// Plain-text connections as they come.
pub(crate) fn incoming(
    listener: TcpListener,
    options: &XdsOptions,
    clients: Arc<Clients>,
) -> impl Stream<Item = io::Result<Socket>> + use<> {
    let (preface, greatest_age) = (options.preface, options.max_connection_age);
    stream::unfold(Door::of_tcp(listener, clients), move |mut door| async move {
        let (stream, place) = door.admit().await?;
        let socket = Socket::new(Transport::Plain(stream), place, preface, greatest_age);
        Some((Ok(socket), door))
    })
}

/// Connections of a Unix socket as they come. Its file is removed with the stream.
pub(crate) fn unix_incoming(
    socket: UnixSocket,
    options: &XdsOptions,
    clients: Arc<Clients>,
) -> impl Stream<Item = io::Result<Socket>> + use<> {
    let (preface, greatest_age) = (options.preface, options.max_connection_age);
    let (listener, file) = socket.into_parts();
    let door = Door::over(UnixListenerStream::new(listener), clients);
    stream::unfold((door, file), move |(mut door, file)| async move {
        loop {
            let (stream, place) = door.admit().await?;
            // The system names the user of each peer; without that the client has no identity.
            let Ok(credentials) = stream.peer_cred() else { continue };
            let socket = Socket::new(Transport::Unix(stream), place, preface, greatest_age);
            return Some((Ok(Socket { user: Some(credentials.uid()), ..socket }), (door, file)));
        }
    })
}

/// TLS connections as their handshakes end. The configuration of a new connection is the one in force.
pub(crate) fn secure_incoming(
    listener: TcpListener,
    config: watch::Receiver<Arc<ServerConfig>>,
    options: &XdsOptions,
    clients: Arc<Clients>,
) -> impl Stream<Item = io::Result<Socket>> + use<> {
    let (preface, greatest_age) = (options.preface, options.max_connection_age);
    let (shaken, sockets) = mpsc::channel(SHAKEN);
    let failed = Arc::new(LogThrottle::default());
    tokio::spawn(async move {
        let mut door = Door::of_tcp(listener, clients);
        loop {
            let admitted = tokio::select! {
                admitted = door.admit() => admitted,
                () = shaken.closed() => return,
            };
            let Some((stream, place)) = admitted else { return };
            let (acceptor, shaken) = (TlsAcceptor::from(config.borrow().clone()), shaken.clone());
            let failed = failed.clone();
            tokio::spawn(async move {
                match handshake(&acceptor, stream, &place, preface).await {
                    Ok((stream, tls)) => {
                        let transport = Transport::Tls(Box::new(stream));
                        let socket = Socket::new(transport, place, preface, greatest_age);
                        let socket = Socket { tls: Some(Arc::new(tls)), ..socket };
                        // Closed: the server is stopping.
                        let _ = shaken.send(Ok(socket)).await;
                    }
                    Err(error) => {
                        metrics::counter!("pilothouse_xds_tls_handshake_failures").increment(1);
                        if let Some(times) = failed.note(1) {
                            let peer = place.client.peer.map(|peer| peer.to_string());
                            tracing::warn!(peer, %error, times, "a TLS handshake failed");
                        }
                    }
                }
            });
        }
    });
    tokio_stream::wrappers::ReceiverStream::new(sockets)
}

async fn handshake(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
    place: &Place,
    patience: Duration,
) -> io::Result<(TlsStream<TcpStream>, PeerTls)> {
    let stream = tokio::select! {
        accepted = tokio::time::timeout(patience, acceptor.accept(stream)) => {
            accepted.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the handshake did not end in time"))??
        }
        () = place.client.close.cancelled() => {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection makes room for another"));
        }
    };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let mut chain = chain.iter().map(|certificate| certificate.clone().into_owned());
    let tls = PeerTls { certificate: chain.next(), intermediates: chain.collect() };
    Ok((stream, tls))
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

/// A listener whose connections are let in while there is room.
struct Door<S> {
    sockets: S,
    clients: Arc<Clients>,
    pause: Duration,
    failed: LogThrottle,
    full: LogThrottle,
}

impl Door<TcpIncoming> {
    fn of_tcp(listener: TcpListener, clients: Arc<Clients>) -> Self {
        let sockets = TcpIncoming::from(listener).with_nodelay(Some(true));
        Self::over(sockets.with_keepalive(Some(Duration::from_secs(30))), clients)
    }
}

/// A connection that was accepted.
trait Accepted {
    /// Where it comes from.
    fn peer(&self) -> Option<SocketAddr>;
}

impl Accepted for TcpStream {
    fn peer(&self) -> Option<SocketAddr> {
        self.peer_addr().ok()
    }
}

impl Accepted for UnixStream {
    fn peer(&self) -> Option<SocketAddr> {
        None
    }
}

impl<S, T> Door<S>
where
    S: Stream<Item = io::Result<T>> + Unpin,
    T: Accepted,
{
    fn over(sockets: S, clients: Arc<Clients>) -> Self {
        Self { sockets, clients, pause: PAUSES.0, failed: LogThrottle::default(), full: LogThrottle::default() }
    }

    /// The next connection that there is room for.
    async fn admit(&mut self) -> Option<(T, Place)> {
        loop {
            self.clients.room().await;
            let stream = self.next().await?;
            if let Some(client) = self.clients.enter(stream.peer()) {
                return Some((stream, Place { clients: self.clients.clone(), client }));
            }
            metrics::counter!("pilothouse_xds_connections_refused").increment(1);
            if let Some(times) = self.full.note(1) {
                tracing::warn!(times, connections = self.clients.count(), "no room for another connection");
            }
        }
    }

    async fn next(&mut self) -> Option<T> {
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
        Peer { client: self.place.client.clone(), tls: self.tls.clone(), user: self.user }
    }
}

impl Socket {
    fn new(stream: Transport, place: Place, preface: Duration, greatest_age: Option<Duration>) -> Self {
        Self {
            stream,
            closed: Box::pin(place.client.close.clone().cancelled_owned()),
            place,
            tls: None,
            user: None,
            deadline: Some(Box::pin(tokio::time::sleep(preface))),
            read: 0,
            greatest_age,
        }
    }

    /// The error that ends the connection from our side, if it is due.
    fn ended(&mut self, context: &mut Context<'_>) -> Option<io::Error> {
        if self.closed.as_mut().poll(context).is_ready() {
            return Some(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection makes room for another"));
        }
        let ended = self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(context).is_ready());
        ended.then(|| io::Error::new(io::ErrorKind::TimedOut, "the connection has reached its time"))
    }
}

macro_rules! on_transport {
    ($socket:ident, $stream:ident => $call:expr) => {
        match &mut $socket.stream {
            Transport::Plain($stream) => $call,
            Transport::Tls($stream) => $call,
            Transport::Unix($stream) => $call,
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = on_transport!(self, stream => Pin::new(stream).poll_read(context, into));
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
        on_transport!(self, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_transport!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_transport!(self, stream => Pin::new(stream).poll_shutdown(context))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_transport!(self, stream => Pin::new(stream).poll_write_vectored(context, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
            Transport::Unix(stream) => stream.is_write_vectored(),
        }
    }
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
    let turn = request.extensions().get::<Peer>().and_then(|peer| peer.client.begin()).ok_or_else(|| {
        Status::resource_exhausted("too many streams of this connection have not asked for anything yet")
    })?;
    let requests =
        Requests::new(request.into_body(), options.max_request_bytes, options.whole_request, turn.unfinished());
    let (outgoing, messages) = mpsc::channel(queued);
    let mut response = Response::new(Body::new(ResponseBody::new(messages)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(Opened { turn, requests, outgoing, response })
}

/// The address that a request comes from.
pub(crate) fn peer_address(request: &Request<Body>) -> Option<SocketAddr> {
    request.extensions().get::<Peer>()?.client.peer
}

/// The user of this machine behind a request, where it came over a Unix socket.
pub(crate) fn peer_user(request: &Request<Body>) -> Option<u32> {
    request.extensions().get::<Peer>()?.user
}

/// The client's side of TLS on the connection of a request; `None` for plain text.
pub(crate) fn peer_tls(request: &Request<Body>) -> Option<&PeerTls> {
    request.extensions().get::<Peer>()?.tls.as_deref()
}
