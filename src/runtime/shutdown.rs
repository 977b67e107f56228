//! The end of the process: asked for by a signal, or forced by a fault.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A shared wish to end. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
    fault: Arc<Mutex<Option<String>>>,
}

impl Shutdown {
    /// Ends the process in good order.
    pub fn begin(&self) {
        self.token.cancel();
    }

    /// Ends the process with an error; the first fault is the one that counts.
    pub fn fail(&self, why: String) {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.token.cancel();
    }

    /// Why the process ends, if it is a fault.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the end has begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits for the end to begin.
    pub async fn begun(&self) {
        self.token.cancelled().await;
    }

    /// A token that is cancelled with it; for tasks that end early by themselves.
    #[must_use]
    pub fn child(&self) -> CancellationToken {
        self.token.child_token()
    }
}

/// Sent for a write beyond `RLIMIT_FSIZE`; the default ends the process. The number that Linux has for it on all but MIPS.
#[cfg(target_os = "linux")]
const SIGXFSZ: i32 = 25;

/// Begins the end at SIGTERM or SIGINT. Must run inside a tokio runtime.
///
/// # Errors
/// When the handlers cannot be installed.
pub fn listen_for_signals(shutdown: &Shutdown) -> std::io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    // A file that may not grow further is an error of the write, not the end of the process.
    #[cfg(target_os = "linux")]
    drop(signal(SignalKind::from_raw(SIGXFSZ))?);
    let shutdown = shutdown.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "shutting down");
        shutdown.begin();
    });
    Ok(())
}
