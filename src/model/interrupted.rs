//! The error of an actor that restarts instead of replying.

/// The receiver lost its state or stopped. The message may be unprocessed; the receiver requests a resync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the receiver was interrupted")]
pub struct Interrupted;
