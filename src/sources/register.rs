//! The port for sources that come and go while the process runs: the receiver of their batches has to know of them.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::{SourceBoard, SourceId};
use crate::model::Interrupted;

/// Knows the sources that may deliver, and forgets those that are gone. Each call may be repeated.
pub trait SourceRegister: Send + Sync + 'static {
    /// Announces a source before it is started.
    fn expect(&self, source: SourceId) -> BoxFuture<'static, Result<(), Interrupted>>;

    /// The announced source was started, with this board.
    fn started(&self, board: Arc<SourceBoard>);

    /// Forgets a source for good, with all its objects.
    fn remove(&self, source: SourceId) -> BoxFuture<'static, Result<(), Interrupted>>;

    /// Names of the sources whose content an earlier process saved.
    fn saved(&self) -> Vec<String>;
}
