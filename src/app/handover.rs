//! An upgrade in place: the listening sockets come from the process that serves, and go to the one that follows.
//!
//! A process that takes over accepts clients only when its first push is complete; until then its predecessor serves. So a new
//! process that does not start, or never gets ready, changes nothing.

use std::{
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::{Error, sockets::Sockets};
use crate::{
    runtime::{Handed, HandoverError, Inherited, Offer, Predecessor, Readiness, Shutdown, hand_over},
    xds::{SocketFile, UnixSocket},
};

/// Only the user of the process, and root, may take over.
const MODE: u32 = 0o600;
/// The state of the start is looked at in this interval.
const LOOK: Duration = Duration::from_millis(20);

/// The predecessor, where one serves, and the sockets that it hands over.
pub(super) struct Taken {
    pub(super) predecessor: Option<Predecessor>,
    pub(super) handed: Vec<Handed>,
}

impl Taken {
    /// Asks the process that listens at the path, if there is one.
    pub(super) async fn ask(path: Option<&Path>, inherited: &Inherited) -> Result<Self, Error> {
        let Some(path) = path else { return Ok(Self { predecessor: None, handed: Vec::new() }) };
        if !inherited.is_empty() {
            let reason = "the service manager hands sockets over itself: one of both".to_string();
            return Err(Error::Handover(HandoverError::Refused { path: path.to_path_buf(), reason }));
        }
        let Some((predecessor, handed)) = Predecessor::ask(path).await.map_err(Error::Handover)? else {
            return Ok(Self { predecessor: None, handed: Vec::new() });
        };
        let Predecessor { process, version, .. } = &predecessor;
        tracing::info!(process, version, sockets = handed.len(), "taking over when this process is ready");
        Ok(Self { predecessor: Some(predecessor), handed })
    }
}

/// The moment from which clients are accepted.
#[derive(Debug, Clone, Default)]
pub(super) struct Opening(CancellationToken);

impl Opening {
    pub(super) async fn begun(&self) {
        self.0.cancelled().await;
    }
}

/// The part of a process in handovers.
pub(super) struct Handover {
    path: PathBuf,
    predecessor: Option<Predecessor>,
    /// The place where a successor asks; made later where the predecessor still listens there.
    place: Option<UnixSocket>,
    offers: Vec<Offer>,
    /// The switch that leaves the file of the clients' Unix socket to the successor.
    leaves: Option<Arc<AtomicBool>>,
}

impl Handover {
    /// Shares the sockets with successors that come to this path.
    pub(super) fn new(path: &Path, predecessor: Option<Predecessor>, sockets: &Sockets) -> Result<Self, Error> {
        let offer = |name: &str, address: String, socket: &dyn AsFd| {
            let socket = socket.as_fd().try_clone_to_owned()?;
            Ok::<_, std::io::Error>(Offer { name: name.to_string(), address, socket })
        };
        let mut offers = Vec::new();
        for (name, address, socket) in sockets.tcp() {
            offers.push(offer(name, address.to_string(), socket)?);
        }
        let mut leaves = None;
        if let Some((socket, path)) = sockets.clients.unix.as_ref().zip(sockets.unix_path.as_deref()) {
            let (socket, switch) = socket.share()?;
            offers.push(Offer { name: super::sockets::UNIX.to_string(), address: path.display().to_string(), socket });
            leaves = Some(switch);
        }
        let path = path.to_path_buf();
        let place = match predecessor {
            Some(_) => None,
            None => Some(listen(&path).map_err(Error::Handover)?),
        };
        Ok(Self { path, predecessor, place, offers, leaves })
    }

    /// Succeeds the predecessor when nothing is waited for, and serves successors until one takes over or the shutdown begins.
    /// Clients are accepted from `opening` on.
    pub(super) async fn run(
        self,
        waiting_for: impl Fn() -> Vec<String>,
        opening: Opening,
        readiness: Readiness,
        shutdown: Shutdown,
    ) {
        let Self { path, predecessor, place, offers, leaves } = self;
        if let Some(predecessor) = predecessor {
            let process = predecessor.process;
            tokio::select! {
                () = shutdown.begun() => {}
                () = ready(&waiting_for) => {}
                () = predecessor.ended() => {
                    tracing::warn!(process, "the process before ended before this one was ready");
                }
            }
            opening.0.cancel();
            if shutdown.has_begun() {
                return;
            }
            match predecessor.succeed().await {
                Ok(()) => tracing::info!(process, "took over"),
                Err(error) => {
                    tracing::error!(process, %error, "the process before does not let go (--handover-socket)")
                }
            }
        }
        opening.0.cancel();
        let place = match place.map_or_else(|| listen(&path), Ok) {
            Ok(place) => place,
            Err(error) => return tracing::error!(%error, "no process can take over from this one (--handover-socket)"),
        };
        let (listener, file): (_, SocketFile) = place.into_parts();
        let Some(successor) = hand_over(listener, offers, &shutdown).await else { return };
        tracing::info!(process = successor.process, "another process has taken over, shutting down");
        readiness.succeed();
        if let Some(leaves) = leaves {
            leaves.store(true, Ordering::Relaxed);
        }
        drop(file);
        shutdown.begin();
    }
}

fn listen(path: &Path) -> Result<UnixSocket, HandoverError> {
    UnixSocket::listen(path, MODE).map_err(|error| HandoverError::Io { path: path.to_path_buf(), error })
}

async fn ready(waiting_for: &impl Fn() -> Vec<String>) {
    while !waiting_for().is_empty() {
        tokio::time::sleep(LOOK).await;
    }
}

/// The opening of a process without predecessor or handover: at once.
pub(super) fn open() -> Opening {
    let opening = Opening::default();
    opening.0.cancel();
    opening
}
