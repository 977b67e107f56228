//! The threads that everything runs on.

use std::future::Future;

/// Runs a future to its end on this thread, as an actix system whose runtime has a worker thread for each core.
///
/// # Errors
/// When the threads cannot be started.
pub fn block_on<F: Future>(future: F) -> std::io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    Ok(actix::System::with_tokio_rt(|| runtime).block_on(future))
}
