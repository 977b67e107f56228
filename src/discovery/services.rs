//! The gRPC server: aggregated and single-type discovery, load reports, health, reflection, over tonic's transport.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use futures::{StreamExt, stream::iter};
use http::{Request, Response};
use tokio::{net::TcpListener, sync::watch};
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;
use tonic::{Status, body::Body, transport::server::Server};

use super::{
    certificates::Certificates,
    claimant::presented,
    load_reports::LoadReports,
    ports::Ports,
    rebuild::{pauses, rebuild},
    state::XdsState,
    stream::{self, Start},
};
use crate::xds::{self, Calls, Protocol, RawService, ResourceType, UnixSocket};

/// Calls of one connection that may fail by frames that the client must not send (CVE-2025-8671).
const MOST_RESETS: usize = 1024;

/// Why the server ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The transport failed.
    #[error("the xDS server failed: {0}")]
    Transport(#[from] tonic::transport::Error),
    /// The descriptor set that reflection serves is broken.
    #[error("the descriptors for reflection are broken: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// The listening sockets of the server.
#[derive(Debug)]
pub struct ListeningSockets {
    /// Plain text.
    pub plain: TcpListener,
    /// TLS, with the configuration that is in force.
    pub secure: Option<(TcpListener, watch::Receiver<Arc<ServerConfig>>)>,
    /// Clients on this machine.
    pub unix: Option<UnixSocket>,
}

impl From<TcpListener> for ListeningSockets {
    fn from(plain: TcpListener) -> Self {
        Self { plain, secure: None, unix: None }
    }
}

/// Serves discovery on its listeners until `shutdown` is cancelled and the streams have ended (they are given
/// [`xds::XdsOptions::drain`] for it, connections a second more).
///
/// # Errors
/// [`ServeError`] when the transport fails.
pub async fn serve(
    sockets: ListeningSockets,
    state: XdsState,
    ports: Ports,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("", tonic_health::ServingStatus::Serving).await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(crate::proto::DESCRIPTORS)
        .build_v1()?;
    let clients = state.clients();
    let secure = sockets
        .secure
        .map(|(listener, config)| xds::secure_incoming(listener, config, state.options(), clients.clone()));
    let unix = sockets.unix.map(|socket| xds::unix_incoming(socket, state.options(), clients.clone()));
    let incoming = futures::stream::select(
        iter(unix).flatten(),
        futures::stream::select(xds::incoming(sockets.plain, state.options(), clients.clone()), iter(secure).flatten()),
    );
    let (keepalive, patience) = state.options().keepalive;
    let mut server = Server::builder()
        .http2_keepalive_interval(Some(keepalive))
        .http2_keepalive_timeout(Some(patience))
        .http2_max_header_list_size(16 << 10)
        .http2_max_pending_accept_reset_streams(Some(20))
        // The library's own default is no bound.
        .http2_max_local_error_reset_streams(Some(MOST_RESETS))
        .max_concurrent_streams(state.options().max_streams);
    if let Some(age) = state.options().max_connection_age {
        // The client is told then to open its next streams on another connection; its streams end soon after.
        server = server.max_connection_age(age);
    }
    let certificates = ports.authenticator.clone().map(|authenticator| {
        RawService(Certificates { state: state.clone(), authenticator, authority: ports.authority.clone() })
    });
    let router = server
        .add_service(RawService(Discovery::<Aggregated>::new(&state, &ports)))
        .add_service(RawService(Discovery::<Clusters>::new(&state, &ports)))
        .add_service(RawService(Discovery::<Endpoints>::new(&state, &ports)))
        .add_service(RawService(Discovery::<Listeners>::new(&state, &ports)))
        .add_service(RawService(Discovery::<Routes>::new(&state, &ports)))
        .add_service(RawService(Discovery::<Secrets>::new(&state, &ports)))
        .add_service(RawService(LoadReports { state: state.clone(), authenticator: ports.authenticator.clone() }))
        .add_optional_service(certificates)
        .add_service(health)
        .add_service(reflection);
    let drain = state.options().drain + Duration::from_secs(1);
    let stopping = shutdown.clone();
    tokio::spawn(rebuild(state.clone(), pauses(), shutdown.clone()));
    let serving = router.serve_with_incoming_shutdown(incoming, async move {
        shutdown.cancelled().await;
        reporter.set_service_status("", tonic_health::ServingStatus::NotServing).await;
        state.shut_down();
    });
    // A connection whose client does not let go must not keep the process.
    let patience = async move {
        stopping.cancelled().await;
        tokio::time::sleep(drain).await;
    };
    tokio::select! {
        ended = serving => ended.map_err(ServeError::from),
        () = patience => Ok(()),
    }
}

/// A discovery service of the xDS API.
trait Kind: Clone + Send + Sync + 'static {
    const NAME: &'static str;
    /// The suffix of its two methods.
    const SUFFIX: &'static str;
    const ONLY: Option<ResourceType>;
}

macro_rules! kinds {
    ($($kind:ident, $name:literal, $suffix:literal, $only:expr;)+) => {$(
        #[derive(Debug, Clone, Copy)]
        struct $kind;
        impl Kind for $kind {
            const NAME: &'static str = $name;
            const SUFFIX: &'static str = $suffix;
            const ONLY: Option<ResourceType> = $only;
        }
    )+};
}

kinds! {
    Aggregated, "envoy.service.discovery.v3.AggregatedDiscoveryService", "AggregatedResources", None;
    Clusters, "envoy.service.cluster.v3.ClusterDiscoveryService", "Clusters", Some(ResourceType::Cluster);
    Endpoints, "envoy.service.endpoint.v3.EndpointDiscoveryService", "Endpoints", Some(ResourceType::Endpoint);
    Listeners, "envoy.service.listener.v3.ListenerDiscoveryService", "Listeners", Some(ResourceType::Listener);
    Routes, "envoy.service.route.v3.RouteDiscoveryService", "Routes", Some(ResourceType::Route);
    Secrets, "envoy.service.secret.v3.SecretDiscoveryService", "Secrets", Some(ResourceType::Secret);
}

/// A discovery service over raw bodies: tonic's codec would copy every response once per client.
#[derive(Clone)]
struct Discovery<K> {
    state: XdsState,
    ports: Ports,
    kind: PhantomData<K>,
}

impl<K> Discovery<K> {
    fn new(state: &XdsState, ports: &Ports) -> Self {
        Self { state: state.clone(), ports: ports.clone(), kind: PhantomData }
    }
}

impl<K: Kind> Calls for Discovery<K> {
    const SERVICE: &'static str = K::NAME;

    fn begin(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let method = xds::method(&request);
        let protocol = match method.strip_suffix(K::SUFFIX) {
            Some("Stream") => Protocol::Sotw,
            Some("Delta") => Protocol::Delta,
            _ => return Err(Status::unimplemented(format!("no method {method}"))),
        };
        let presented = presented(&request);
        let opened = xds::open(request, self.state.options(), stream::QUEUED)?;
        let (state, ports) = (self.state.clone(), self.ports.clone());
        let start = Start { state, ports, protocol, only: K::ONLY, turn: opened.turn, presented };
        tokio::spawn(stream::serve(start, opened.requests, opened.outgoing));
        Ok(opened.response)
    }
}
