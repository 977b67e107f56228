//! The config store: the objects of each source, and the one aggregate view of them.
//!
//! Key = (cluster, kind, namespace, name), unique. The order of the sources is their precedence: the first that holds a key
//! wins, the others are shadowed, which is reported and never silent. Objects are immutable and shared. When a handler
//! receives a change, the published snapshot holds that change or something newer. Equal content makes no event.
//!
//! The store never interprets a change. It reads and writes no files except those of the last good content.

pub mod actor;
mod aggregate;
mod key;
pub mod last_good;
mod memory;
mod patch;
mod register;

pub use crate::model::document;
pub use actor::{AggregateCacheActor, EventHandler, HandlerError, StoreHandle};
pub use aggregate::{Aggregate, Shadowed};
pub use key::StoreKey;
pub use memory::{MemoryStore, StoreError};
pub use patch::Patch;
pub use register::StoreRegister;
