//! Host names of gateways between networks, resolved: a source whose content is addresses instead of objects.
//!
//! Each name is looked up again when the time to live of its answer ends, within bounds. A failure keeps the last good
//! addresses. Names, addresses of a name, look-ups under way and their time are bounded.

mod lookup;
mod rules;

pub use lookup::Dns;
pub use rules::{NameRecords, NameRules};

/// The source of addresses.
pub type NameSource = super::polled::PolledSource<NameRules>;
