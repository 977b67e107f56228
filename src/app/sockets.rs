//! The addresses that the process listens on, bound before anything is started, or inherited from a service manager or from the
//! process that this one succeeds.

use std::{
    io,
    net::SocketAddr,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use tokio::net::TcpListener;

use super::Error;
use crate::{
    runtime::{Handed, Inherited},
    settings::{AdminSettings, ListenAddress, UnixSocketSettings, XdsSettings},
    xds::UnixSocket,
};

/// Names of sockets that a service manager may hand over.
const NAMES: [&str; 4] = [GRPC, SECURE_GRPC, HTTP, MONITORING];
const GRPC: &str = "grpc";
const SECURE_GRPC: &str = "secure-grpc";
const HTTP: &str = "http";
const MONITORING: &str = "monitoring";
/// The Unix socket of clients, which only a predecessor hands over.
pub(super) const UNIX: &str = "grpc-unix";

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
    pub(super) unix_path: Option<PathBuf>,
}

/// The sockets of xDS clients.
pub(super) struct ClientSockets {
    pub(super) grpc: TcpListener,
    pub(super) secure_grpc: Option<TcpListener>,
    pub(super) unix: Option<UnixSocket>,
}

impl Sockets {
    /// The inherited sockets, those of a predecessor that listen where the settings say, and every other address that the
    /// settings name, bound.
    pub(super) async fn bind(
        xds: &XdsSettings,
        admin: &AdminSettings,
        mut inherited: Inherited,
        mut handed: Vec<Handed>,
    ) -> Result<Self, Error> {
        if let Some(name) = inherited.keys().find(|name| !NAMES.contains(&name.as_str())) {
            let reason = format!("it is none of {}", NAMES.join(", "));
            return Err(Error::Inherited { name: name.clone(), reason });
        }
        let mut open = async |name: &str, address: Option<&ListenAddress>| match (inherited.remove(name), address) {
            (Some(socket), _) => adopt(socket)
                .map(Some)
                .map_err(|error| Error::Inherited { name: name.to_string(), reason: error.to_string() }),
            (None, Some(address)) => match of_predecessor(&mut handed, name, address).await {
                Some(socket) => adopt(socket).map(Some).map_err(|error| cannot_bind(name, address, error)),
                None => bind(name, address).await.map(Some),
            },
            (None, None) => Ok(None),
        };
        let grpc = open(GRPC, Some(&xds.grpc_address)).await?.ok_or(io::Error::from(io::ErrorKind::NotFound))?;
        let secure_grpc = open(SECURE_GRPC, xds.secure_grpc_address.as_ref()).await?;
        let unix_path = xds.unix_socket.as_ref().map(|unix| unix.path.clone());
        let mut pages = Vec::new();
        for (name, address) in [(HTTP, Some(&admin.http_address)), (MONITORING, admin.monitoring_address.as_ref())] {
            if let Some(socket) = open(name, address).await? {
                pages.push(socket.into_std()?);
            }
        }
        let unix = xds.unix_socket.as_ref().map(|unix| unix_socket(unix, &mut handed)).transpose()?;
        let mut bound = pages.iter().map(std::net::TcpListener::local_addr);
        let http = bound.next().unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))?;
        let secure = secure_grpc.as_ref().map(TcpListener::local_addr).transpose()?;
        let addresses =
            Addresses { grpc: grpc.local_addr()?, secure_grpc: secure, http, monitoring: bound.next().transpose()? };
        Ok(Self { addresses, clients: ClientSockets { grpc, secure_grpc, unix }, pages, unix_path })
    }

    /// The sockets with their names and addresses.
    pub(super) fn tcp(&self) -> Vec<(&'static str, SocketAddr, &dyn AsFd)> {
        let Addresses { grpc, secure_grpc, http, monitoring } = self.addresses;
        let ClientSockets { grpc: of_grpc, secure_grpc: of_secure, .. } = &self.clients;
        let mut pages = self.pages.iter();
        let of_secure = secure_grpc.zip(of_secure.as_ref());
        let (of_http, of_monitoring) = (pages.next(), monitoring.zip(pages.next()));
        let mut all: Vec<(&'static str, SocketAddr, &dyn AsFd)> = vec![(GRPC, grpc, of_grpc)];
        all.extend(of_secure.map(|(address, socket)| (SECURE_GRPC, address, socket as &dyn AsFd)));
        all.extend(of_http.map(|socket| (HTTP, http, socket as &dyn AsFd)));
        all.extend(of_monitoring.map(|(address, socket)| (MONITORING, address, socket as &dyn AsFd)));
        all
    }
}

/// The socket of this name that a predecessor hands over, if it listens where this address says. An address that was changed is
/// bound anew.
async fn of_predecessor(
    handed: &mut Vec<Handed>,
    name: &str,
    address: &ListenAddress,
) -> Option<std::net::TcpListener> {
    let at = handed.iter().position(|handed| handed.name == name)?;
    let socket = std::net::TcpListener::from(handed.remove(at).socket);
    let bound = socket.local_addr().ok()?;
    let wanted: Vec<SocketAddr> = tokio::net::lookup_host(address.as_str()).await.ok()?.collect();
    // Port 0 lets the system choose, and it has chosen.
    let is_it = |wanted: &SocketAddr| wanted.ip() == bound.ip() && [0, bound.port()].contains(&wanted.port());
    let taken = wanted.iter().any(is_it);
    if !taken {
        tracing::info!(name, before = %bound, now = %address, "the address is another one than that of the process before");
    }
    taken.then_some(socket)
}

fn unix_socket(settings: &UnixSocketSettings, handed: &mut Vec<Handed>) -> Result<UnixSocket, Error> {
    let path = || settings.path.clone();
    let is_it = |handed: &Handed| handed.name == UNIX && Path::new(&handed.address) == settings.path;
    let socket = match handed.iter().position(is_it) {
        Some(at) => UnixSocket::adopt(handed.remove(at).socket.into(), &settings.path, settings.mode),
        None => UnixSocket::listen(&settings.path, settings.mode),
    };
    let socket = socket.map_err(|error| Error::Unix { path: path(), error })?;
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

async fn bind(name: &str, address: &ListenAddress) -> Result<TcpListener, Error> {
    crate::xds::listen(address.as_str()).await.map_err(|error| cannot_bind(name, address, error))
}

fn cannot_bind(name: &str, address: &ListenAddress, error: io::Error) -> Error {
    Error::Bind { name: name.to_string(), address: address.clone(), error }
}
