//! The CRDs of the kinds that are read. Metadata of all CRDs are watched; only those of these kinds are read in full.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use http::Request;
use serde::Deserialize;
use tokio::sync::Notify;

use super::{
    Cluster, FeedReport, FeedState,
    follower::{End, Follower, ObjectChange, WatchTarget},
    groups::{crd_name, is_custom},
    presence::{Crds, resource},
    raw::RawMetadata,
    status::FeedBoard,
    watch_error::of_error,
};
use crate::model::Kind;

/// CRDs that are read at the same time.
const AT_ONCE: usize = 4;

#[derive(Deserialize)]
struct Resources {
    resources: Vec<Served>,
}

#[derive(Deserialize)]
struct Served {
    name: String,
}

#[derive(Deserialize)]
struct Definition {
    metadata: DefinitionMeta,
    spec: DefinitionSpec,
    #[serde(default)]
    status: DefinitionStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DefinitionMeta {
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct DefinitionSpec {
    versions: Vec<DefinitionVersion>,
}

#[derive(Deserialize)]
struct DefinitionVersion {
    name: String,
    served: bool,
}

#[derive(Deserialize, Default)]
struct DefinitionStatus {
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    name: String,
    status: String,
}

impl Definition {
    /// The version that we read the kind in, if it can be read.
    fn version(&self, kind: Kind) -> Option<String> {
        let established =
            self.status.conditions.iter().flatten().any(|c| c.name == "Established" && c.status == "True");
        if self.metadata.deletion_timestamp.is_some() || !established {
            return None;
        }
        let served = |v: &&&str| self.spec.versions.iter().any(|s| s.served && s.name == **v);
        kind.versions().iter().find(|v| served(v)).map(ToString::to_string)
    }
}

/// Asks the server for the CRD of a kind: the version that we read it in, or `None` when it does not exist or is being deleted.
pub(super) async fn ask(cluster: &Cluster, kind: Kind) -> Result<Option<String>, String> {
    let client = cluster.client().await.map_err(|e| e.to_string())?;
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}", crd_name(kind));
    let request = Request::get(path).body(Vec::new()).map_err(|e| e.to_string())?;
    let answer = tokio::time::timeout(cluster.settings().list_timeout, client.request::<Definition>(request)).await;
    match answer {
        Ok(Ok(definition)) => Ok(definition.version(kind)),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
        Ok(Err(error)) => Err(format!("CRD of {kind}: {}", of_error(&error))),
        Err(_) => Err(format!("CRD of {kind}: no answer")),
    }
}

/// Asks discovery, which everybody may see, whether there is a kind in a version; `None` when it does not say.
pub(super) async fn is_served(cluster: &Cluster, kind: Kind, api_version: &str) -> Option<bool> {
    let client = cluster.client().await.ok()?;
    let request = Request::get(format!("/apis/{api_version}")).body(Vec::new()).ok()?;
    let answer = tokio::time::timeout(cluster.settings().list_timeout, client.request::<Resources>(request)).await;
    match answer.ok()? {
        Ok(Resources { resources }) => Some(resources.iter().any(|r| r.name == kind.plural())),
        Err(kube::Error::Api(status)) if status.code == 404 => Some(false),
        Err(_) => None,
    }
}

/// Follows the CRDs of a cluster and publishes which of our kinds can be read.
pub(super) struct CrdFollower {
    cluster: Arc<Cluster>,
    board: FeedBoard,
    changed: Arc<Notify>,
    ours: BTreeMap<String, Kind>,
}

impl CrdFollower {
    pub(super) fn new(cluster: Arc<Cluster>, board: FeedBoard, changed: Arc<Notify>) -> Self {
        let ours = Kind::ALL.iter().copied().filter(|k| is_custom(*k)).map(|k| (crd_name(k), k)).collect();
        Self { cluster, board, changed, ours }
    }

    /// Reads the CRDs of these kinds. The others stay as they are; with `all`, they are removed.
    async fn refresh(&self, kinds: BTreeSet<Kind>, all: bool) -> Result<(), End> {
        let cluster = &self.cluster;
        let asked: Vec<(Kind, Result<Option<String>, String>)> = stream::iter(kinds)
            .map(|kind| async move { (kind, ask(cluster, kind).await) })
            .buffered(AT_ONCE)
            .collect()
            .await;
        let before = match (&*cluster.crds.borrow(), all) {
            (Crds::Known(known), false) => (**known).clone(),
            _ => BTreeMap::new(),
        };
        let mut known = before;
        for (kind, answer) in asked {
            match answer.map_err(End::Renew)? {
                Some(version) => known.insert(kind, version),
                None => known.remove(&kind),
            };
        }
        self.publish(Crds::Known(Arc::new(known)));
        Ok(())
    }

    fn publish(&self, crds: Crds) {
        self.cluster.crds.send_if_modified(|now| {
            let other = *now != crds;
            *now = crds;
            other
        });
    }
}

impl Follower for CrdFollower {
    type Object = RawMetadata;
    type Item = Option<Kind>;

    fn target(&mut self) -> BoxFuture<'_, WatchTarget> {
        async { WatchTarget { resource: resource(), namespace: None, fields: None, labels: None } }.boxed()
    }

    fn read(&mut self, object: RawMetadata, _: bool) -> Option<Kind> {
        self.ours.get(object.0.name()).copied()
    }

    fn listed(&mut self, list: Vec<Option<Kind>>) -> BoxFuture<'_, Result<(), End>> {
        let kinds = list.into_iter().flatten().collect();
        self.refresh(kinds, true).boxed()
    }

    fn told(&mut self, changes: Vec<ObjectChange<Option<Kind>>>) -> BoxFuture<'_, Result<(), End>> {
        let kinds: BTreeSet<Kind> = changes
            .into_iter()
            .filter_map(|change| match change {
                ObjectChange::Put(kind) | ObjectChange::Gone(kind) => kind,
            })
            .collect();
        async move { if kinds.is_empty() { Ok(()) } else { self.refresh(kinds, false).await } }.boxed()
    }

    fn report(&mut self, change: &mut dyn FnMut(&mut FeedReport)) {
        let state = self.board.write(change);
        if state == FeedState::Forbidden && *self.cluster.crds.borrow() == Crds::Unknown {
            self.publish(Crds::Hidden);
        }
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn version(deleted: Option<&str>, served: &[&str], established: &str) -> Option<String> {
        let versions: Vec<_> = ["v1", "v1beta1", "v1alpha3"]
            .iter()
            .map(|v| json!({"name": v, "served": served.contains(v), "schema": {}}))
            .collect();
        let definition: Definition = serde_json::from_value(json!({"metadata": {"deletionTimestamp": deleted},
            "spec": {"versions": versions}, "status": {"conditions": [{"type": "Established", "status": established}]}}))
        .unwrap();
        definition.version(Kind::ServiceEntry)
    }

    #[test]
    fn a_kind_is_read_in_the_first_version_that_is_served_while_its_crd_stands() {
        assert_eq!(version(None, &["v1", "v1beta1"], "True").as_deref(), Some("v1"));
        assert_eq!(version(None, &["v1beta1", "v1alpha3"], "True").as_deref(), Some("v1alpha3"));
        assert_eq!(version(None, &["v1"], "False"), None);
        assert_eq!(version(Some("2024-01-01T00:00:00Z"), &["v1"], "True"), None);
        assert_eq!(version(None, &[], "True"), None);
    }
}
