//! The threads of the process.

use std::future::Future;

/// Runs a future to completion on this thread, in an actix system whose runtime has a worker thread per core. The threads
/// outlive the call, so it must be the last one of a process.
///
/// # Errors
/// Fails when the threads cannot be started.
pub fn block_on<F: Future>(future: F) -> std::io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let system = actix::System::with_tokio_rt(|| runtime);
    let output = system.block_on(future);
    // Dropping the system would wait for blocked file reads, without limit.
    std::mem::forget(system);
    Ok(output)
}
