//! The handle of a source that was started.

use std::sync::Arc;

use super::{
    SourceActor, SourceBoard, SourceId, SourceState,
    actor::{ConfirmDeletion, Restart, Resync},
};
use crate::runtime::Mailbox;

/// A source that was started.
#[derive(Clone)]
pub struct SourceHandle {
    /// The report of the source.
    pub board: Arc<SourceBoard>,
    id: SourceId,
    mailbox: Mailbox<SourceActor>,
}

impl SourceHandle {
    /// The handle of a source's actor.
    #[must_use]
    pub fn new(board: Arc<SourceBoard>, mailbox: Mailbox<SourceActor>) -> Self {
        let id = board.read().source;
        Self { board, id, mailbox }
    }

    /// Name of the source.
    #[must_use]
    pub fn id(&self) -> SourceId {
        self.id.clone()
    }

    /// Confirms the mass deletion that is held and gives its keys. Without one nothing happens.
    pub fn confirm_deletion(&self) -> Vec<String> {
        let report = self.board.read();
        if report.state == SourceState::Holding {
            self.mailbox.tell(ConfirmDeletion);
        }
        report.held_deletions
    }

    /// Ends its run and begins a new one, which keeps the content of the last one.
    pub fn restart(&self) {
        self.mailbox.tell(Restart);
    }

    /// Requests a full snapshot. Requests merge in the source.
    pub fn resync(&self) {
        self.mailbox.tell(Resync);
    }
}
