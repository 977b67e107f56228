//! Encoded resources, the blocks and snapshots that hold them, and the differences between snapshots: each made once and shared
//! by all clients with the same content.

pub(super) mod claims;
mod outgoing;
pub(super) mod resource;
pub(super) mod shared;
pub(super) mod snapshot;
pub(super) mod update;
pub(super) mod updates;
