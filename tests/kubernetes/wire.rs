//! A wire to an API server that can be cut.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tokio::{
    io,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

use crate::server::Server;

/// The state of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Whole.
    No,
    /// Connections break, and new ones break too.
    Broken,
    /// No byte passes, and no side gets an error.
    Silent,
}

/// Forwards connections to a server. It ends with this.
pub struct Wire {
    /// A kubeconfig for clients that reach the server this way.
    pub kubeconfig: PathBuf,
    cut: watch::Sender<Cut>,
    accepting: JoinHandle<()>,
}

impl Wire {
    /// A wire to this server.
    pub async fn to(server: &Server, dir: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (target, here) = (server.address(), listener.local_addr().unwrap().to_string());
        let kubeconfig = dir.join("over-a-wire");
        let text = fs::read_to_string(&server.kubeconfig).unwrap();
        assert!(text.contains(&target), "{text}");
        fs::write(&kubeconfig, text.replace(&target, &here)).unwrap();
        let cut = watch::Sender::new(Cut::No);
        let state = cut.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(forward(socket, target.clone(), state.subscribe()));
            }
        });
        Self { kubeconfig, cut, accepting }
    }

    /// Cuts it, or mends it.
    pub fn set(&self, cut: Cut) {
        self.cut.send_replace(cut);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn forward(mut near: TcpStream, target: String, mut cut: watch::Receiver<Cut>) {
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    loop {
        let now = *cut.borrow_and_update();
        let ended = match now {
            Cut::Broken => return,
            Cut::Silent => cut.changed().await.is_err(),
            Cut::No => tokio::select! {
                _ = io::copy_bidirectional(&mut near, &mut far) => true,
                changed = cut.changed() => changed.is_err(),
            },
        };
        if ended {
            return;
        }
    }
}
