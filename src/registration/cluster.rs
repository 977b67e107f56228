//! Entries in a Kubernetes cluster: written to its API server, and read back by the watch.
//!
//! While the API server is unreachable, one request at a time tries it: all others fail at once, so that a proxy that
//! connects meanwhile is not kept waiting.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{FutureExt, future::BoxFuture};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use super::{EntryKey, EntryStore};
use crate::{
    model::{Config, Kind, decode, validation::validate},
    sources::{
        WriteError,
        kube::{KubeWriter, ObjectRef},
    },
};

/// Pause between an unreachable API server and the next trial.
const NEXT_TRIAL: Duration = Duration::from_secs(1);
/// Limit of the wait for a trial; longer than any request takes.
const TRIAL: Duration = Duration::from_secs(12);

/// The entries of a cluster. Cheap to clone.
#[derive(Clone)]
pub struct ClusterEntries {
    writer: KubeWriter,
    outage: Arc<Outage>,
}

/// Time of the next trial and error of the last request; `None` while requests succeed.
#[derive(Debug, Default)]
struct Outage(Mutex<Option<(Instant, String)>>);

impl Outage {
    fn lock(&self) -> MutexGuard<'_, Option<(Instant, String)>> {
        self.0.lock()
    }

    fn may_ask(&self, now: Instant) -> Result<(), WriteError> {
        match &mut *self.lock() {
            Some((next, why)) if *next > now => Err(WriteError::Unreachable(why.clone())),
            Some((next, _)) => {
                *next = now + TRIAL;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn learn(&self, now: Instant, failed: Option<&WriteError>) {
        *self.lock() = match failed {
            Some(WriteError::Unreachable(why)) => Some((now + NEXT_TRIAL, why.clone())),
            _ => None,
        };
    }

    async fn ask<T>(&self, request: impl Future<Output = Result<T, WriteError>>) -> Result<T, WriteError> {
        self.may_ask(Instant::now())?;
        let answer = request.await;
        self.learn(Instant::now(), answer.as_ref().err());
        answer
    }
}

fn place(stored: &Value) -> ObjectRef {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    ObjectRef {
        kind: Kind::WorkloadEntry,
        api_version: text(&stored["apiVersion"]),
        namespace: text(&stored["metadata"]["namespace"]),
        name: text(&stored["metadata"]["name"]),
    }
}

impl ClusterEntries {
    /// The entries of the writer's cluster.
    #[must_use]
    pub fn new(writer: KubeWriter) -> Self {
        Self { writer, outage: Arc::default() }
    }

    fn merge(&self, stored: &Value, mut patch: Value, status: bool) -> BoxFuture<'static, Result<Value, WriteError>> {
        let (entries, place) = (self.clone(), place(stored));
        patch["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
        async move { entries.outage.ask(entries.writer.merge(&place, &patch, status)).await }.boxed()
    }
}

impl EntryStore for ClusterEntries {
    fn get(&self, key: &EntryKey) -> BoxFuture<'static, Result<Option<Value>, WriteError>> {
        let kind = Kind::WorkloadEntry;
        let (namespace, name) = (key.namespace.to_string(), key.name.to_string());
        let place = ObjectRef { kind, api_version: kind.api_version(), namespace, name };
        let entries = self.clone();
        async move { entries.outage.ask(entries.writer.find(&place)).await }.boxed()
    }

    /// Entries and groups are watched apart: the deletion of an entry may be known before a change of its group.
    fn group(&self, known: Arc<Config>) -> BoxFuture<'static, Result<Option<Arc<Config>>, WriteError>> {
        let place = ObjectRef {
            kind: known.kind(),
            api_version: known.meta.api_version.to_string(),
            namespace: known.meta.namespace.to_string(),
            name: known.meta.name.to_string(),
        };
        let entries = self.clone();
        async move {
            let found = entries.outage.ask(entries.writer.find(&place)).await?;
            Ok(found.map(|document| good(&document, &known).map_or(known, Arc::new)))
        }
        .boxed()
    }

    fn create(&self, document: Value) -> BoxFuture<'static, Result<Value, WriteError>> {
        let (entries, place) = (self.clone(), place(&document));
        async move { entries.outage.ask(entries.writer.create(&place, &document)).await }.boxed()
    }

    fn annotate(&self, stored: &Value, annotations: Value) -> BoxFuture<'static, Result<Value, WriteError>> {
        self.merge(stored, json!({"metadata": {"annotations": annotations}}), false)
    }

    fn set_status(&self, stored: &Value, status: Value) -> BoxFuture<'static, Result<Value, WriteError>> {
        self.merge(stored, json!({ "status": status }), true)
    }

    fn delete(&self, stored: &Value) -> BoxFuture<'static, Result<(), WriteError>> {
        let (entries, place) = (self.clone(), place(stored));
        let version = stored["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_string();
        async move { entries.outage.ask(entries.writer.delete(&place, &version)).await }.boxed()
    }
}

/// The group of a document, if it is valid: else the last good one stays in force.
fn good(document: &Value, known: &Config) -> Option<Config> {
    let config = decode::from_value(document, known.origin.clone()).ok()?;
    validate(&config).is_valid().then_some(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_nothing_gets_through_one_at_a_time_tries() {
        let (outage, start) = (Outage::default(), Instant::now());
        let may = |at: Duration| outage.may_ask(start + at);
        assert!(may(Duration::ZERO).is_ok() && may(Duration::ZERO).is_ok());
        let lost = WriteError::Unreachable("no answer".to_string());
        outage.learn(start, Some(&lost));
        assert_eq!(may(NEXT_TRIAL / 2), Err(lost.clone()));
        assert_eq!((may(NEXT_TRIAL), may(NEXT_TRIAL)), (Ok(()), Err(lost.clone())));
        assert!(may(NEXT_TRIAL + TRIAL).is_ok(), "a trial that never ends does not block the next");
        outage.learn(start, Some(&lost));
        outage.learn(start, Some(&WriteError::Conflict));
        assert!(may(Duration::ZERO).is_ok(), "that was an answer");
    }
}
