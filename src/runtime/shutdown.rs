//! Shutdown of the process: requested by a signal, or caused by a fault.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A shared handle for the shutdown. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
    fault: Arc<Mutex<Option<String>>>,
}

impl Shutdown {
    /// Begins a graceful shutdown.
    pub fn begin(&self) {
        self.token.cancel();
    }

    /// Begins a shutdown with an error; of several faults the first is reported.
    pub fn fail(&self, why: String) {
        self.fault.lock().get_or_insert(why);
        self.token.cancel();
    }

    /// The fault that caused the shutdown, if any.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    /// Whether the shutdown has begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits until the shutdown begins.
    pub async fn begun(&self) {
        self.token.cancelled().await;
    }

    /// A token that is cancelled by the shutdown; for tasks that may also end earlier.
    #[must_use]
    pub fn child(&self) -> CancellationToken {
        self.token.child_token()
    }
}

/// Sent for a write beyond `RLIMIT_FSIZE`; by default it ends the process. The number is Linux's on all architectures but MIPS.
#[cfg(target_os = "linux")]
const SIGXFSZ: i32 = 25;

/// Begins the shutdown at SIGTERM or SIGINT. Must run inside a tokio runtime.
///
/// # Errors
/// Fails when the handlers cannot be installed.
pub fn listen_for_signals(shutdown: &Shutdown) -> std::io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    // A write beyond the file size limit should fail with an error instead of ending the process.
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
