//! The rules of one kind of polled value: its bounds, the meaning of an answer, and its words in reports.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

/// The rules of one kind of polled value.
pub trait PollRules: Send + 'static {
    /// The name that a value is polled by.
    type Key: Clone + Debug + Ord + Send + Sync;
    /// The terms of a poll, from the configuration that demands the key.
    type Terms: Clone + Debug + Send + Sync;
    /// The outcome of one poll.
    type Answer: Send;
    /// The state of one key between polls.
    type Held: Debug + Default + Send;
    /// The value that is handed over.
    type Value: Send + Sync;

    /// Name of the source.
    const SOURCE: &'static str;
    /// The word for several keys.
    const KEYS: &'static str;
    /// The word for a key that has been polled.
    const POLLED: &'static str;
    /// The number of keys that are polled at most.
    const MOST_KEYS: usize;
    /// The bytes of all values together at most.
    const MOST_BYTES: usize;

    /// Takes an answer into the state of its key. `room` is the number of bytes that the value may have.
    fn take(&self, held: &mut Self::Held, answer: Self::Answer, room: usize, now: Instant) -> Taken;

    /// The longest pause after a failure.
    fn longest_retry(&self) -> Duration;

    /// The value to hand over; `None` where there is none.
    fn value(held: &Self::Held) -> Option<Self::Value>;

    /// The bytes of a value.
    fn bytes(_: &Self::Held) -> usize {
        0
    }

    /// Drops a value that has outlived its last successful poll; true when there was one.
    fn expire(_: &mut Self::Held, _now: Instant) -> bool {
        false
    }

    /// The reason why an answer that is no failure still leaves a problem.
    fn lack(_: &Self::Held) -> Option<&'static str> {
        None
    }

    /// The text of a key.
    fn text(key: &Self::Key) -> &str;

    /// Logs that a key has a problem from now on. `kept` is whether an older value of it stays in force.
    fn log(key: &Self::Key, error: &str, kept: bool);
}

/// The effect of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Whether the value is another one than before.
    pub changed: bool,
    /// The pause until the next poll, or the reason why the poll failed.
    pub next: Result<Duration, String>,
}
