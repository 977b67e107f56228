//! The addresses that the process listens on, bound before anything is started, or inherited from a service manager.

use std::{io, net::SocketAddr};

use tokio::net::TcpListener;

use super::Error;
use crate::{
    runtime::Inherited,
    settings::{AdminSettings, ListenAddress, UnixSocketSettings, XdsSettings},
    xds::UnixSocket,
};

/// Names of sockets that a service manager may hand over.
const NAMES: [&str; 4] = [GRPC, SECURE_GRPC, HTTP, MONITORING];
const GRPC: &str = "grpc";
const SECURE_GRPC: &str = "secure-grpc";
const HTTP: &str = "http";
const MONITORING: &str = "monitoring";

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
    /// The inherited sockets, and every other address that the settings name, bound.
    pub(super) async fn bind(xds: &XdsSettings, admin: &AdminSettings, inherited: Inherited) -> Result<Self, Error> {
        let mut inherited = inherited;
        if let Some(name) = inherited.keys().find(|name| !NAMES.contains(&name.as_str())) {
            let reason = format!("it is none of {}", NAMES.join(", "));
            return Err(Error::Inherited { name: name.clone(), reason });
        }
        let mut open = async |name: &str, address: Option<&ListenAddress>| match (inherited.remove(name), address) {
            (Some(socket), _) => adopt(socket)
                .map(Some)
                .map_err(|error| Error::Inherited { name: name.to_string(), reason: error.to_string() }),
            (None, Some(address)) => bind(address).await.map(Some),
            (None, None) => Ok(None),
        };
        let grpc = open(GRPC, Some(&xds.grpc_address)).await?.ok_or(io::Error::from(io::ErrorKind::NotFound))?;
        let secure_grpc = open(SECURE_GRPC, xds.secure_grpc_address.as_ref()).await?;
        let unix = xds.unix_socket.as_ref().map(unix_socket).transpose()?;
        let mut pages = Vec::new();
        for (name, address) in [(HTTP, Some(&admin.http_address)), (MONITORING, admin.monitoring_address.as_ref())] {
            if let Some(socket) = open(name, address).await? {
                pages.push(socket.into_std()?);
            }
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

/// An inherited socket, for the use of this process.
fn adopt(socket: std::net::TcpListener) -> io::Result<TcpListener> {
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}

async fn bind(address: &ListenAddress) -> Result<TcpListener, Error> {
    crate::xds::listen(address.as_str()).await.map_err(|error| Error::Bind { address: address.clone(), error })
}
