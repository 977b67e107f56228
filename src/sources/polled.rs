//! Sources of values that are polled key by key, such as key sets by location and addresses by host name.
//!
//! The keys in demand are followed. Each one is polled, polled again when its value is due, and after a failure with a
//! back-off; a failure keeps the last good value; a key that is not in demand any more is forgotten with its value. No
//! reader waits for a poll: all values are handed over when one of them changes. Keys, and polls under way, are bounded.
//! `rules` is the part in which one kind of value differs from another, `table` the schedule and the values (decisions
//! only), `source` the task.

mod rules;
mod source;
mod table;
#[cfg(test)]
mod tests;

pub use rules::{PollRules, Taken};
pub use source::{Demand, Poll, PolledSource};
pub use table::{PolledTable, Values};
