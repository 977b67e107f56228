//! An upstream that sends the responses of a test's script, in either protocol.

use std::{
    convert::Infallible,
    net::SocketAddr,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use prost::Message;
use tokio::{net::TcpListener, sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{
    Status, Streaming,
    body::Body,
    metadata::MetadataMap,
    server::NamedService,
    transport::{Server, ServerTlsConfig, server::TcpIncoming},
};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

/// Time that the test waits for a client.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server whose streams the test controls. `Q` are its requests, `R` its responses.
#[derive(Debug)]
pub struct ScriptedUpstream<Q, R> {
    /// Address that it listens on.
    pub address: SocketAddr,
    streams: mpsc::Receiver<ScriptedStream<Q, R>>,
    shutdown: CancellationToken,
}

/// A stream. Dropping it ends it.
#[derive(Debug)]
pub struct ScriptedStream<Q, R> {
    /// Metadata of the client's request.
    pub metadata: MetadataMap,
    requests: Streaming<Q>,
    responses: mpsc::Sender<Result<R, Status>>,
}

impl<Q, R> ScriptedUpstream<Q, R>
where
    Q: Message + Default + Send + Sync + 'static,
    R: Message + Default + Send + Sync + 'static,
{
    /// Starts the server on a free port, with TLS if configured.
    ///
    /// # Errors
    /// When no port is free, or the TLS configuration is invalid.
    pub async fn start(tls: Option<ServerTlsConfig>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (opened, streams) = mpsc::channel(16);
        let shutdown = CancellationToken::new();
        let mut server = Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls)?;
        }
        let serving = server.add_service(Script { opened }).serve_with_incoming(TcpIncoming::from(listener));
        let stop = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = serving => {}
                () = stop.cancelled() => {}
            }
        });
        Ok(Self { address, streams, shutdown })
    }

    /// The next stream that a client opens; `None` when none comes.
    pub async fn accept(&mut self) -> Option<ScriptedStream<Q, R>> {
        timeout(PATIENCE, self.streams.recv()).await.ok().flatten()
    }
}

impl<Q, R> Drop for ScriptedUpstream<Q, R> {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl<Q: Message + Default, R> ScriptedStream<Q, R> {
    /// The next request; `None` when none comes.
    pub async fn next(&mut self) -> Option<Q> {
        timeout(PATIENCE, self.requests.message()).await.ok()?.ok()?
    }

    /// Sends a response. False when the client is gone.
    pub async fn say(&self, response: R) -> bool {
        self.responses.send(Ok(response)).await.is_ok()
    }

    /// Ends the stream with an error.
    pub async fn fail(self, status: Status) {
        let _ = self.responses.send(Err(status)).await;
    }
}

#[derive(Debug)]
struct Script<Q, R> {
    opened: mpsc::Sender<ScriptedStream<Q, R>>,
}

impl<Q, R> Clone for Script<Q, R> {
    fn clone(&self) -> Self {
        Self { opened: self.opened.clone() }
    }
}

impl<Q, R> NamedService for Script<Q, R> {
    const NAME: &'static str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
}

impl<Q, R> Service<http::Request<Body>> for Script<Q, R>
where
    Q: Message + Default + Send + Sync + 'static,
    R: Message + Default + Send + Sync + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let opened = self.opened.clone();
        let open = service_fn(move |request: tonic::Request<Streaming<Q>>| {
            let opened = opened.clone();
            async move {
                let (responses, waiting) = mpsc::channel(16);
                let metadata = request.metadata().clone();
                let stream = ScriptedStream { metadata, requests: request.into_inner(), responses };
                opened.send(stream).await.map_err(|_| Status::unavailable("the script is over"))?;
                Ok::<_, Status>(tonic::Response::new(ReceiverStream::new(waiting)))
            }
        });
        let codec = ProstCodec::<R, Q>::default();
        async move { Ok(tonic::server::Grpc::new(codec).streaming(open, request).await) }.boxed()
    }
}
