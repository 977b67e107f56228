//! The threads that everything runs on.

use std::future::Future;

/// Runs a future to its end on this thread, as an actix system whose runtime has a worker thread for each core. The threads
/// outlive it: this is the last thing that a process does.
///
/// # Errors
/// When the threads cannot be started.
pub fn block_on<F: Future>(future: F) -> std::io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let system = actix::System::with_tokio_rt(|| runtime);
    let output = system.block_on(future);
    // Its end would wait for whoever still reads a file, however long that takes.
    std::mem::forget(system);
    Ok(output)
}
