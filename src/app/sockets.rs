//! The addresses that the process listens on, bound before anything is started.

use std::{io, net::SocketAddr};

use tokio::net::TcpListener;

use super::Error;
use crate::{
    settings::{AdminSettings, ListenAddress, UnixSocketSettings, XdsSettings},
    xds::UnixSocket,
};

/// The addresses that were bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// xDS.
    pub grpc: SocketAddr,
    /// xDS over TLS, where it is served.
    pub secure_grpc: Option<SocketAddr>,
    /// Readiness and debug pages.
    pub http: SocketAddr,
    /// Metrics, when they have an address of their own.
    pub monitoring: Option<SocketAddr>,
}

/// Bound sockets.
pub(super) struct Sockets {
    pub(super) addresses: Addresses,
    pub(super) clients: ClientSockets,
    /// Readiness and debug pages, then metrics.
    pub(super) pages: Vec<std::net::TcpListener>,
}

/// The sockets of xDS clients.
pub(super) struct ClientSockets {
    pub(super) grpc: TcpListener,
    pub(super) secure_grpc: Option<TcpListener>,
    pub(super) unix: Option<UnixSocket>,
}

impl Sockets {
    /// Binds every address that the settings name.
    pub(super) async fn bind(xds: &XdsSettings, admin: &AdminSettings) -> Result<Self, Error> {
        let grpc = bind(&xds.grpc_address).await?;
        let secure_grpc = match &xds.secure_grpc_address {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let unix = xds.unix_socket.as_ref().map(unix_socket).transpose()?;
        let mut pages = Vec::new();
        for address in std::iter::once(&admin.http_address).chain(&admin.monitoring_address) {
            pages.push(bind(address).await?.into_std()?);
        }
        let mut bound = pages.iter().map(std::net::TcpListener::local_addr);
        let http = bound.next().unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))?;
        let secure = secure_grpc.as_ref().map(TcpListener::local_addr).transpose()?;
        let addresses =
            Addresses { grpc: grpc.local_addr()?, secure_grpc: secure, http, monitoring: bound.next().transpose()? };
        Ok(Self { addresses, clients: ClientSockets { grpc, secure_grpc, unix }, pages })
    }
}

fn unix_socket(settings: &UnixSocketSettings) -> Result<UnixSocket, Error> {
    let path = || settings.path.clone();
    let socket =
        UnixSocket::listen(&settings.path, settings.mode).map_err(|error| Error::Unix { path: path(), error })?;
    if settings.mode & 0o066 == 0 && settings.peers.iter().any(|peer| peer.uid != 0) {
        let (path, mode) = (settings.path.display(), format!("{:04o}", settings.mode));
        tracing::warn!(%path, mode, "the mode of the Unix socket lets no other user in, although --unix-peer names some");
    }
    Ok(socket)
}

async fn bind(address: &ListenAddress) -> Result<TcpListener, Error> {
    crate::xds::listen(address.as_str()).await.map_err(|error| Error::Bind { address: address.clone(), error })
}
