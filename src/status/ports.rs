//! Ports of the reporter: the objects' statuses, and the lease of the leader.

use futures::future::BoxFuture;
use serde_json::Value;

use super::election::Record;
use crate::{model::Config, sources::WriteError};

/// The server's current version of an object.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Fresh {
    /// Status of the object; `Null` without one.
    pub status: Value,
    /// Resource version of the object.
    pub version: String,
    /// Generation of the object's spec.
    pub generation: i64,
}

/// Writes statuses to the objects' API server.
pub trait StatusSink: Send + Sync + 'static {
    /// Applies our part of a status to the object if it still has this resource version; returns the stored object.
    fn apply(&self, config: &Config, version: &str, status: &Value) -> BoxFuture<'static, Result<Fresh, WriteError>>;

    /// Reads the current object.
    fn fetch(&self, config: &Config) -> BoxFuture<'static, Result<Fresh, WriteError>>;
}

/// Storage of the leader's lease.
pub trait LeaseStore: Send + Sync + 'static {
    /// Reads the lease; `None` when it does not exist.
    fn read(&self) -> BoxFuture<'static, Result<Option<Record>, WriteError>>;

    /// Writes the lease if it still has the record's version, or creates it when that is empty.
    fn write(&self, record: Record) -> BoxFuture<'static, Result<(), WriteError>>;
}
