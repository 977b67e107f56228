//! Entries in a Kubernetes cluster: written to its API server, from where they come back by the watch.

use futures::{FutureExt, future::BoxFuture};
use serde_json::{Value, json};

use super::{EntryKey, EntryStore};
use crate::{
    model::Kind,
    sources::{
        WriteError,
        kube::{KubeWriter, Place},
    },
};

/// The entries of a cluster.
#[derive(Clone)]
pub struct ClusterEntries(pub KubeWriter);

fn place(stored: &Value) -> Place {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    Place {
        kind: Kind::WorkloadEntry,
        api_version: text(&stored["apiVersion"]),
        namespace: text(&stored["metadata"]["namespace"]),
        name: text(&stored["metadata"]["name"]),
    }
}

impl ClusterEntries {
    fn merge(&self, stored: &Value, mut patch: Value, status: bool) -> BoxFuture<'static, Result<Value, WriteError>> {
        let (writer, place) = (self.0.clone(), place(stored));
        patch["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
        async move { writer.merge(&place, &patch, status).await }.boxed()
    }
}

impl EntryStore for ClusterEntries {
    fn get(&self, key: &EntryKey) -> BoxFuture<'static, Result<Option<Value>, WriteError>> {
        let kind = Kind::WorkloadEntry;
        let (namespace, name) = (key.namespace.to_string(), key.name.to_string());
        let place = Place { kind, api_version: kind.api_version(), namespace, name };
        let writer = self.0.clone();
        async move { writer.find(&place).await }.boxed()
    }

    fn create(&self, document: Value) -> BoxFuture<'static, Result<Value, WriteError>> {
        let (writer, place) = (self.0.clone(), place(&document));
        async move { writer.create(&place, &document).await }.boxed()
    }

    fn annotate(&self, stored: &Value, annotations: Value) -> BoxFuture<'static, Result<Value, WriteError>> {
        self.merge(stored, json!({"metadata": {"annotations": annotations}}), false)
    }

    fn set_status(&self, stored: &Value, status: Value) -> BoxFuture<'static, Result<Value, WriteError>> {
        self.merge(stored, json!({ "status": status }), true)
    }

    fn delete(&self, stored: &Value) -> BoxFuture<'static, Result<(), WriteError>> {
        let (writer, place) = (self.0.clone(), place(stored));
        let version = stored["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_string();
        async move { writer.delete(&place, &version).await }.boxed()
    }
}
