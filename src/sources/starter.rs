//! Starts the actors of sources, all in the same way.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{ConfigSink, Source, SourceActor, SourceBoard, SourceHandle, SourcePort};
use crate::runtime::Supervision;

/// Starts actors of sources.
#[derive(Clone)]
pub struct SourceStarter {
    /// Where the sources deliver.
    pub sink: Arc<dyn ConfigSink>,
    /// Supervision of all actors.
    pub supervision: Supervision,
    /// A source without a sign of life for this long is restarted.
    pub silence: Duration,
}

impl SourceStarter {
    /// Starts the actor of a source, on a thread of actix; `stop` ends it.
    #[must_use]
    pub fn start(&self, source: Arc<dyn Source>, stop: CancellationToken) -> SourceHandle {
        let board = Arc::new(SourceBoard::new(source.id()));
        let port = SourcePort {
            sink: self.sink.clone(),
            board: board.clone(),
            stop,
            resync: Arc::default(),
            confirm: Arc::default(),
        };
        let actor_health = self.supervision.admit(&format!("source {}", source.id()));
        SourceHandle::new(board, SourceActor::start(source, port, actor_health, self.silence))
    }
}
