//! Why an object was not written back to where a source reads it from.

/// Why a write, or the read before it, was not carried out. Every place that objects are written to says it in these words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The object is another one than the caller saw: it has changed, or exists already (409).
    #[error("the object has changed since it was read")]
    Conflict,
    /// There is no such object (404).
    #[error("there is no such object")]
    Gone,
    /// Nobody answered, for a person: not in time, or not at all.
    #[error("{0}")]
    Unreachable(String),
    /// Anything else, for a person.
    #[error("{0}")]
    Other(String),
}
