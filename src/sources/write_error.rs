//! Errors of writing an object back to the place that a source reads it from.

/// The failure of a write, or of the read before it, in the same words for every place that objects are written to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The object is not the one that the caller read: it has changed, or exists already (409).
    #[error("the object has changed since it was read")]
    Conflict,
    /// There is no such object (404).
    #[error("there is no such object")]
    Gone,
    /// There is no right to it (403); with a text for a person.
    #[error("{0}")]
    Forbidden(String),
    /// No answer, or none in time; with a text for a person.
    #[error("{0}")]
    Unreachable(String),
    /// Anything else, for a person.
    #[error("{0}")]
    Other(String),
}
