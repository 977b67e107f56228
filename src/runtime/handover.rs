//! Listening sockets that a running process hands to its successor on the same machine, over a Unix socket.
//!
//! The successor connects and says the form of its question; the answer is one line with the names and addresses of the sockets,
//! which come with it (`SCM_RIGHTS`). Both processes hold the sockets then, so clients that connect at any moment are in a queue
//! that one of them reads. The running process serves on until the successor says that it is ready; a successor that ends before
//! has changed nothing. One successor is answered at a time, and only one of the same user or of root.

mod message;
mod predecessor;
mod running;

use std::{io, path::PathBuf, time::Duration};

pub use message::Offer;
pub use predecessor::{Handed, Predecessor};
pub use running::{TakenOver, hand_over};

/// The form of the messages.
const PROTOCOL: u32 = 1;
/// A line of the other end is waited for so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// A reason that the sockets of a running process cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The system refuses it.
    #[error("{path}: {error}", path = .path.display())]
    Io {
        /// Path of the socket.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// Sockets of a process of another user are not trusted.
    #[error(
        "{path}: the process that listens there is one of user {found}, and this one of user {own}: sockets are taken over from the same user or from root",
        path = .path.display()
    )]
    OtherUser {
        /// Path of the socket.
        path: PathBuf,
        /// The user of the process that listens.
        found: u32,
        /// The user of this process.
        own: u32,
    },
    /// The other end speaks another form.
    #[error(
        "{path}: the running process (version {version}) hands over in form {found}, and this one takes over in form {PROTOCOL}: end it, then start this one",
        path = .path.display()
    )]
    OtherForm {
        /// Path of the socket.
        path: PathBuf,
        /// The version of the other end.
        version: String,
        /// Its form.
        found: u32,
    },
    /// The other end is no pilothouse, or hangs.
    #[error("{path}: the process that listens there does not answer as a pilothouse does: {reason}", path = .path.display())]
    Strange {
        /// Path of the socket.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The running process says no.
    #[error("{path}: the running process hands nothing over: {reason}", path = .path.display())]
    Refused {
        /// Path of the socket.
        path: PathBuf,
        /// Its reason.
        reason: String,
    },
}

/// The user of this process.
fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests;
