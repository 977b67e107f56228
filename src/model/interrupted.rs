//! The answer of an actor that restarts, in place of a reply.

/// The receiver lost its state or is gone. What it was handed may not have been taken in; it asks for a resync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the receiver was interrupted")]
pub struct Interrupted;
