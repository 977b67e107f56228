//! The storage of entries, as this room needs it: read, created, patched and deleted under optimistic concurrency.

use std::{fmt, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use serde_json::Value;

use crate::{model::Config, sources::WriteError};

/// Namespace and name of a WorkloadEntry.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryKey {
    /// Namespace of the entry.
    pub namespace: Arc<str>,
    /// Name of the entry.
    pub name: Arc<str>,
}

impl fmt::Display for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Stores entries, as documents. Each write returns the stored document.
pub trait EntryStore: Send + Sync + 'static {
    /// Reads an entry; `None` when there is none.
    fn get(&self, key: &EntryKey) -> BoxFuture<'static, Result<Option<Value>, WriteError>>;

    /// The stored version of a group, of which `known` is in force; `None` when it is gone.
    fn group(&self, known: Arc<Config>) -> BoxFuture<'static, Result<Option<Arc<Config>>, WriteError>> {
        async move { Ok(Some(known)) }.boxed()
    }

    /// Writes a new entry.
    fn create(&self, document: Value) -> BoxFuture<'static, Result<Value, WriteError>>;

    /// Changes annotations of the entry if it is still this version; `null` removes one.
    fn annotate(&self, stored: &Value, annotations: Value) -> BoxFuture<'static, Result<Value, WriteError>>;

    /// Replaces the status of the entry if it is still this version.
    fn set_status(&self, stored: &Value, status: Value) -> BoxFuture<'static, Result<Value, WriteError>>;

    /// Deletes the entry if it is still this version.
    fn delete(&self, stored: &Value) -> BoxFuture<'static, Result<(), WriteError>>;
}
