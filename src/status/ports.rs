//! What the reporter writes through: the objects' statuses, and the lease that says who writes.

use futures::future::BoxFuture;
use serde_json::Value;

use super::election::Record;
use crate::{model::Config, sources::WriteError};

/// An object as the server holds it now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Fresh {
    /// Its status; `Null` when there is none.
    pub status: Value,
    /// Its resource version.
    pub version: String,
    /// The generation of its spec.
    pub generation: i64,
}

/// Writes statuses.
pub trait StatusSink: Send + Sync + 'static {
    /// Applies our part of a status to the object if it still has this resource version; gives it as stored.
    fn apply(&self, config: &Config, version: &str, status: &Value) -> BoxFuture<'static, Result<Fresh, WriteError>>;

    /// Reads an object.
    fn fetch(&self, config: &Config) -> BoxFuture<'static, Result<Fresh, WriteError>>;
}

/// Keeps the lease.
pub trait LeaseStore: Send + Sync + 'static {
    /// Reads it; `None` when there is none.
    fn read(&self) -> BoxFuture<'static, Result<Option<Record>, WriteError>>;

    /// Writes it if it still has the record's version, or creates it when that is empty.
    fn write(&self, record: Record) -> BoxFuture<'static, Result<(), WriteError>>;
}
