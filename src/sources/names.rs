//! Host names of gateways between networks, resolved: a source whose content is addresses instead of objects.
//!
//! Each name is asked for again when the time to live of its answer ends, within bounds; a failure keeps the addresses of
//! before; a name that no configuration has any more is forgotten. No reader waits for an answer: it is handed over
//! when it comes. Names, addresses of a name, questions under way and their time are bounded.

mod lookup;
mod source;
mod table;

pub use lookup::Dns;
pub use source::{Lookup, NameSink, NameSource, WantedNames};
pub use table::{NameRecords, NameTable};
