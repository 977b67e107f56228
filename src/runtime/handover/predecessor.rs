//! The process that serves now, as its successor sees it.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use tokio::{net::UnixStream, time::timeout};

use super::{
    HandoverError, PATIENCE, PROTOCOL,
    message::{Answer, Question, READY, receive, send},
    own_user,
};

/// A listening socket of the process that serves now.
#[derive(Debug)]
pub struct Handed {
    /// The name of what is served there.
    pub name: String,
    /// Its address, or its path.
    pub address: String,
    /// The socket.
    pub socket: OwnedFd,
}

/// The process that serves until it is told that its successor does.
#[derive(Debug)]
pub struct Predecessor {
    stream: UnixStream,
    path: PathBuf,
    /// Its process id.
    pub process: u32,
    /// Its version.
    pub version: String,
}

impl Predecessor {
    /// Asks the process that listens at a path for its sockets; `None` where none listens.
    ///
    /// # Errors
    /// [`HandoverError`]; the process that listens there serves on.
    pub async fn ask(path: &Path) -> Result<Option<(Self, Vec<Handed>)>, HandoverError> {
        let failed = |error: io::Error| HandoverError::Io { path: path.to_path_buf(), error };
        let strange = |reason: String| HandoverError::Strange { path: path.to_path_buf(), reason };
        let stream = match UnixStream::connect(path).await {
            Ok(stream) => stream,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                return Ok(None);
            }
            Err(error) => return Err(failed(error)),
        };
        let (own, found) = (own_user(), stream.peer_cred().map_err(failed)?.uid());
        if found != own && found != 0 {
            return Err(HandoverError::OtherUser { path: path.to_path_buf(), found, own });
        }
        let question = Question { handover: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_string() };
        let line = serde_json::to_string(&question).map_err(|error| failed(error.into()))?;
        let asked = async {
            send(&stream, &line, &[]).await?;
            receive(&stream).await
        };
        let (line, sockets) = match timeout(PATIENCE, asked).await {
            Ok(Ok(Some(answer))) => answer,
            Ok(Ok(None)) => return Err(strange("it closed the connection".to_string())),
            Ok(Err(error)) => return Err(strange(error.to_string())),
            Err(_) => return Err(strange(format!("no answer within {PATIENCE:?}"))),
        };
        let answer: Answer = serde_json::from_str(&line).map_err(|error| strange(error.to_string()))?;
        if answer.handover != PROTOCOL {
            let Answer { version, handover: found, .. } = answer;
            return Err(HandoverError::OtherForm { path: path.to_path_buf(), version, found });
        }
        if let Some(reason) = answer.refused {
            return Err(HandoverError::Refused { path: path.to_path_buf(), reason });
        }
        if sockets.len() != answer.sockets.len() {
            return Err(strange(format!("{} sockets and {} names for them", sockets.len(), answer.sockets.len())));
        }
        let handed = answer.sockets.into_iter().zip(sockets);
        let handed = handed.map(|((name, address), socket)| Handed { name, address, socket }).collect();
        let (process, version) = (answer.process, answer.version);
        Ok(Some((Self { stream, path: path.to_path_buf(), process, version }, handed)))
    }

    /// Waits until it ends without having been told anything.
    pub async fn ended(&self) {
        while let Ok(Some(_)) = receive(&self.stream).await {}
    }

    /// Tells it that this process serves now, and waits until it listens no more at its path.
    ///
    /// # Errors
    /// When it does not close the connection in time.
    pub async fn succeed(self) -> Result<(), HandoverError> {
        let told = async {
            send(&self.stream, READY, &[]).await?;
            receive(&self.stream).await.map(drop)
        };
        match timeout(PATIENCE, told).await {
            // It has ended already.
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                Ok(())
            }
            Ok(Err(error)) => Err(HandoverError::Io { path: self.path, error }),
            Err(_) => Err(HandoverError::Strange { path: self.path, reason: "it does not let go".to_string() }),
        }
    }
}
