//! The context that clients are served from, with the number of its publication.

use std::sync::Arc;

use super::history::PushRecord;
use crate::push::PushContext;

/// A published context.
#[derive(Debug)]
pub struct Published {
    /// Number of the publication, from 1.
    pub version: u64,
    /// The context.
    pub context: Arc<PushContext>,
    /// The record of the push.
    pub record: Arc<PushRecord>,
}
