//! The ports of a source: what it pushes into, and what it is given to live with.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{SourceBatch, SourceBoard, SourceId};
use crate::model::Interrupted;

/// A batch was taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Applied {
    /// How many objects are effectively new, different or gone.
    pub changes: usize,
}

/// Takes batches in. The reply comes when the batch is in the store and its handlers have run.
pub trait ConfigSink: Send + Sync + 'static {
    /// Hands one batch over.
    fn apply(&self, batch: SourceBatch) -> BoxFuture<'static, Result<Applied, Interrupted>>;
}

/// What a running source is given.
#[derive(Clone)]
pub struct SourcePort {
    /// Where batches go.
    pub sink: Arc<dyn ConfigSink>,
    /// Where the source says how it is.
    pub board: Arc<SourceBoard>,
    /// Ends the source.
    pub stop: CancellationToken,
    /// Asks the source to send everything again.
    pub resync: Arc<Notify>,
    /// Lets a held mass deletion through.
    pub confirm: Arc<Notify>,
}

/// A source: runs until it is stopped. Ending early, failing, panicking and going silent are all faults that its actor
/// answers with a restart.
pub trait Source: Send + Sync + 'static {
    /// Its name.
    fn id(&self) -> SourceId;

    /// Runs it. The first batch of each run is a full snapshot.
    fn run(&self, port: SourcePort) -> BoxFuture<'static, anyhow::Result<()>>;
}
