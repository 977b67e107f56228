//! The running process: the handles that callers have of it, and its end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use actix::Arbiter;
use actix_web::dev::ServerHandle;
use tokio::{task::JoinHandle, time::timeout};

use super::{Addresses, Inputs, traces::TraceTasks};
use crate::{
    discovery::{ServeError, XdsState},
    registry::RegistryHandle,
    runtime::{Readiness, Shutdown, Supervision},
    sources::{SourceHandle, SourceList},
    store::StoreHandle,
};

pub(super) struct Tasks {
    pub(super) grpc_server: JoinHandle<Result<(), ServeError>>,
    pub(super) pages: ServerHandle,
    /// The tasks that write to the state folder; each ends when all is written.
    pub(super) keeping: Vec<JoinHandle<()>>,
    pub(super) config_thread: Arbiter,
    /// The candidate for the lease, which releases it when the shutdown begins.
    pub(super) candidate: Option<JoinHandle<()>>,
    pub(super) traces: Option<TraceTasks>,
}

/// A running process. Dropping it ends nothing: [`Running::wait`] does, when `shutdown` begins.
pub struct Running {
    /// The addresses that were bound.
    pub addresses: Addresses,
    /// The parts that have not synced yet.
    pub readiness: Readiness,
    /// Begins the shutdown.
    pub shutdown: Shutdown,
    /// All actors.
    pub supervision: Supervision,
    /// The xDS server.
    pub state: XdsState,
    /// The store.
    pub store: StoreHandle,
    /// The registry.
    pub registry: RegistryHandle,
    /// Mesh settings and flags.
    pub inputs: Arc<Inputs>,
    /// The sources that were named at the start, in order of precedence; the mesh settings last.
    pub sources: Vec<SourceHandle>,
    /// All sources of this moment, those of remote clusters included.
    pub all_sources: SourceList,
    pub(super) drain: Duration,
    pub(super) tasks: Tasks,
}

impl Running {
    /// Names the parts that are not ready, whenever it is asked: none where `/ready` answers 200.
    pub fn waiting_for(&self) -> impl Fn() -> Vec<String> + Send + Sync + use<> {
        let (readiness, state) = (self.readiness.clone(), self.state.clone());
        move || match readiness.waiting_for() {
            parts if parts.is_empty() && state.current().is_none() => vec!["first push".to_string()],
            parts => parts,
        }
    }

    /// Waits for the shutdown to begin, and ends all parts in order within the time for a drain.
    ///
    /// # Errors
    /// The fault, when it is one that ends the process.
    pub async fn wait(self) -> Result<(), String> {
        let Self { readiness, shutdown, state, drain, tasks, .. } = self;
        let Tasks { mut grpc_server, pages, keeping, candidate, traces, config_thread } = tasks;
        // The server ends only by the shutdown or by a fault.
        tokio::select! {
            () = shutdown.begun() => {}
            ended = &mut grpc_server => {
                if !shutdown.has_begun() {
                    shutdown.fail(format!("the xDS server ended: {ended:?}"));
                }
            }
        }
        let (began, deadline) = (Instant::now(), drain);
        state.shut_down();
        if readiness.is_succeeded() {
            // New connections are the successor's; those that were accepted are answered in the meantime.
            pages.pause().await;
        }
        if !grpc_server.is_finished() && timeout(deadline, &mut grpc_server).await.is_err() {
            tracing::warn!("streams did not end in time, cut off");
            grpc_server.abort();
        }
        if let Some(candidate) = candidate
            && timeout(deadline.max(Duration::from_secs(1)), candidate).await.is_err()
        {
            tracing::warn!("the lease was not given back in time");
        }
        if let Some(traces) = traces {
            traces.end().await;
        }
        pages.stop(true).await;
        for keeping in keeping {
            if timeout(deadline.max(Duration::from_secs(1)), keeping).await.is_err() {
                tracing::warn!("the last good content was not written in time");
            }
        }
        config_thread.stop();
        let left = deadline.saturating_sub(began.elapsed()).max(Duration::from_millis(100));
        let joined = tokio::task::spawn_blocking(move || config_thread.join());
        if timeout(left, joined).await.is_err() {
            tracing::warn!("the config thread did not end in time");
        }
        tracing::info!(took_ms = began.elapsed().as_millis() as u64, "drained");
        shutdown.fault().map_or(Ok(()), Err)
    }
}
