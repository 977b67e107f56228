//! Traces of pushes: the tasks that follow and export them, where the environment names a collector.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use super::process::Process;
use crate::{discovery::PushTraces, telemetry::traces_of_env};

/// The longest time that the end of the process waits for the collector.
const PATIENCE: Duration = Duration::from_secs(2);

/// The tasks of traces.
pub(super) struct TraceTasks {
    following: JoinHandle<()>,
    stop_following: CancellationToken,
    export: JoinHandle<()>,
    stop_export: CancellationToken,
}

/// Starts the tasks, and gives the place for traces. Without variables of OpenTelemetry nothing is started.
pub(super) fn start(process: &Process) -> Option<(Arc<PushTraces>, TraceTasks)> {
    let (queue, export) = traces_of_env(&process.instance())?;
    let traces = PushTraces::new(queue);
    // They end after the streams, whose last answers belong to traces: not by the token of the shutdown.
    let (stop_following, stop_export) = (CancellationToken::new(), CancellationToken::new());
    let following = tokio::spawn(traces.clone().run(stop_following.clone()));
    let export = tokio::spawn(export.run(stop_export.clone()));
    Some((traces, TraceTasks { following, stop_following, export, stop_export }))
}

impl TraceTasks {
    /// Exports what is left, as far as the collector takes it within two seconds.
    pub(super) async fn end(self) {
        let Self { following, stop_following, mut export, stop_export } = self;
        let all = async {
            stop_following.cancel();
            let _ = following.await;
            stop_export.cancel();
            let _ = (&mut export).await;
        };
        if timeout(PATIENCE, all).await.is_err() {
            tracing::warn!("the last traces were not exported in time");
            export.abort();
        }
    }
}
