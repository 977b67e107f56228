//! The messages of a handover: one line of JSON each, sockets beside the answer.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use tokio::{io::Interest, net::UnixStream};

/// Most sockets that are handed over.
const MOST: usize = 16;
/// Most bytes of a line.
const LONGEST: usize = 4096;

/// The question of a successor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Question {
    /// The form of its messages.
    pub(super) handover: u32,
    pub(super) version: String,
}

/// The answer of the running process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) handover: u32,
    pub(super) version: String,
    pub(super) process: u32,
    /// The reason that nothing is handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<String>,
    /// Names and addresses of the sockets that come with the line, in their order.
    #[serde(default)]
    pub(super) sockets: Vec<(String, String)>,
}

impl Answer {
    pub(super) fn new(refused: Option<String>, offers: &[Offer]) -> Self {
        let sockets = offers.iter().map(|offer| (offer.name.clone(), offer.address.clone())).collect();
        let version = env!("CARGO_PKG_VERSION").to_string();
        Self { handover: super::PROTOCOL, version, process: std::process::id(), refused, sockets }
    }
}

/// The word of a successor that serves.
pub(super) const READY: &str = "ready";

/// A listening socket that a successor gets.
#[derive(Debug)]
pub struct Offer {
    /// The name of what is served there.
    pub name: String,
    /// Its address, or its path.
    pub address: String,
    /// The socket.
    pub socket: OwnedFd,
}

/// Sends a line, with the sockets of these offers.
pub(super) async fn send(stream: &UnixStream, line: &str, offers: &[Offer]) -> io::Result<()> {
    let bytes = format!("{line}\n");
    let sockets: Vec<_> = offers.iter().map(|offer| offer.socket.as_fd()).collect();
    let mut sent = 0;
    while sent < bytes.len() {
        stream.writable().await?;
        let written = stream.try_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            // The sockets come with the first byte.
            if sent == 0 && !sockets.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(&sockets)) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("more than {MOST} sockets")));
            }
            let part = [IoSlice::new(&bytes.as_bytes()[sent..])];
            Ok(sendmsg(stream, &part, &mut beside, SendFlags::NOSIGNAL)?)
        });
        match written {
            Ok(count) => sent += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives a line, with the sockets beside it; `None` where the other end has closed before it.
pub(super) async fn receive(stream: &UnixStream) -> io::Result<Option<(String, Vec<OwnedFd>)>> {
    let (mut line, mut sockets) = (Vec::new(), Vec::new());
    loop {
        stream.readable().await?;
        let mut bytes = [0; 512];
        let read = stream.try_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
            let mut beside = RecvAncillaryBuffer::new(&mut space);
            let mut part = [IoSliceMut::new(&mut bytes)];
            let message = recvmsg(stream, &mut part, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
            for message in beside.drain() {
                if let RecvAncillaryMessage::ScmRights(received) = message {
                    sockets.extend(received);
                }
            }
            Ok(message.bytes)
        });
        match read {
            Ok(0) if line.is_empty() => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => line.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            let text = String::from_utf8(line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            return Ok(Some((text, sockets)));
        }
        if line.len() > LONGEST {
            let error = format!("a line of more than {LONGEST} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
    }
}
