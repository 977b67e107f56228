//! The config store: what each source holds, and the one aggregate view of it.
//!
//! Key = (cluster, kind, namespace, name), unique. The order of the sources is their precedence: the first that holds a key
//! wins, the others are shadowed, which is reported and never silent. Objects are immutable and shared. When a handler is told
//! of a change, the published snapshot holds that change or something newer. Equal content makes no event.
//!
//! The store never decides what a change means. Of files it knows only those in which it keeps the last good content.

pub mod actor;
mod aggregate;
mod key;
pub mod last_good;
mod memory;
mod patch;

pub use crate::model::document;
pub use actor::{AggregateCacheActor, EventHandler, HandlerError, StoreHandle};
pub use aggregate::{Aggregate, Shadowed};
pub use key::StoreKey;
pub use memory::{MemoryStore, StoreError};
pub use patch::Patch;
