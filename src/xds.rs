//! The xDS server: aggregated and single-type discovery, state of the world and delta, on one core.
//!
//! Invariants: a resource is generated and encoded once per view, never per client; a connection holds pointers, not
//! copies; at most one response per type and stream is unacknowledged and newer content replaces what waits; unchanged
//! bytes are never sent again; nothing is held across a socket write. What a client sends may end its own stream, and
//! nothing else.

#[cfg(test)]
mod convergence;
pub mod names;
pub mod request;
pub mod resource;
pub mod resource_type;
pub mod session;
pub mod snapshot;
pub mod subscription;
mod wire;

pub use names::{NameSet, Scope};
pub use resource::{Block, Resource};
pub use resource_type::{ResourceType, TypeSet};
pub use session::Session;
pub use snapshot::{Protocol, Snapshot, Updates};
