//! The ports of a source: the sink of its batches, and the requests that it serves.

use std::{future::ready, sync::Arc};

use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{SourceBatch, SourceBoard, SourceId};
use crate::model::{Config, Interrupted};

/// A batch was taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Applied {
    /// The number of objects that were added, changed or removed in effect.
    pub changes: usize,
}

/// Takes batches in. The reply comes when the batch is in the store and its handlers have run.
pub trait ConfigSink: Send + Sync + 'static {
    /// Hands one batch over.
    fn apply(&self, batch: SourceBatch) -> BoxFuture<'static, Result<Applied, Interrupted>>;

    /// The objects of a source that were saved on disk, before this process took its first batch. None where nothing is saved.
    fn saved(&self, _source: &SourceId) -> BoxFuture<'static, Vec<Arc<Config>>> {
        Box::pin(ready(Vec::new()))
    }
}

/// The surroundings of a running source.
#[derive(Clone)]
pub struct SourcePort {
    /// The receiver of batches.
    pub sink: Arc<dyn ConfigSink>,
    /// The source's report.
    pub board: Arc<SourceBoard>,
    /// Ends the source.
    pub stop: CancellationToken,
    /// Requests a full snapshot.
    pub resync: Arc<Notify>,
    /// Confirms a held mass deletion.
    pub confirm: Arc<Notify>,
}

/// A source: runs until it is stopped. Ending early, failing, panicking and going silent are all faults that its actor
/// answers with a restart.
pub trait Source: Send + Sync + 'static {
    /// Name of the source, unique among all sources.
    fn id(&self) -> SourceId;

    /// Runs it. The first batch of each run is a full snapshot.
    fn run(&self, port: SourcePort) -> BoxFuture<'static, anyhow::Result<()>>;
}
