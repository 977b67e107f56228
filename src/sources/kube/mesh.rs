//! The mesh settings of a cluster: the ConfigMap `istio` (`istio-REVISION`) in the control plane's namespace.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use http::Request;
use parking_lot::Mutex;
use serde_json::Value;

use super::{
    Cluster, FeedReport, FeedState, RawObject,
    follower::{End, Follower, ObjectChange, WatchTarget},
    groups::resource,
    status::FeedBoard,
    watch::alone,
    watch_error::of_error,
};
use crate::{
    model::{Config, Kind, Mesh, mesh::laid_over},
    settings::MeshSettings,
    sources::{MeshSink, Source, SourceId, SourcePort, SourceState, yaml},
};

/// The time that the start waits for the settings of the cluster.
const PATIENCE: Duration = Duration::from_secs(15);

/// Name of the ConfigMap.
pub(super) fn name(cluster: &Cluster) -> String {
    match cluster.settings().revision.as_str() {
        "" | "default" => "istio".to_string(),
        revision => format!("istio-{revision}"),
    }
}

/// Mesh settings and networks, as written.
pub type Values = (Value, Value);

/// `mesh` and `meshNetworks` of a ConfigMap; `Null` for an absent one.
pub(super) fn values(object: &Value) -> Result<Values, String> {
    parts(|key| object.get("data")?.get(key)?.as_str())
}

fn parts<'a>(text_of: impl Fn(&str) -> Option<&'a str>) -> Result<Values, String> {
    let part = |key: &str| {
        let Some(text) = text_of(key) else { return Ok(Value::Null) };
        let read = yaml::values(text).map_err(|e| format!("{key}:{}:{}: {}", e.line, e.column, e.reason))?;
        let value = read.into_iter().next().unwrap_or(Value::Null);
        if value.is_object() || value.is_null() { Ok(value) } else { Err(format!("{key}: it is not an object")) }
    };
    Ok((part("mesh")?, part("meshNetworks")?))
}

/// The settings of the one ConfigMap over those of the shared one.
fn joined(shared: Values, own: Values) -> Values {
    (laid_over(shared.0, own.0), laid_over(shared.1, own.1))
}

/// Asks the cluster for its mesh settings, once: `Null` for absent ones.
///
/// # Errors
/// A text, when the cluster cannot be asked or has settings that cannot be read.
pub async fn mesh_values(cluster: &Cluster) -> Result<Values, String> {
    let shared = match cluster.settings().shared_mesh.as_str() {
        "" => Values::default(),
        shared => values_of(cluster, shared).await?,
    };
    Ok(joined(shared, values_of(cluster, &name(cluster)).await?))
}

async fn values_of(cluster: &Cluster, name: &str) -> Result<Values, String> {
    let path = format!("/api/v1/namespaces/{}/configmaps/{name}", cluster.settings().namespace);
    let ask = async {
        let client = cluster.client().await.map_err(|e| e.to_string())?;
        let request = Request::get(&path).body(Vec::new()).map_err(|e| e.to_string())?;
        match client.request::<Value>(request).await {
            Ok(object) => values(&object),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok((Value::Null, Value::Null)),
            Err(error) => Err(of_error(&error)),
        }
    };
    let answer = tokio::time::timeout(PATIENCE, ask).await;
    answer.unwrap_or_else(|_| Err("no answer".to_string())).map_err(|e| format!("mesh settings of the cluster: {e}"))
}

/// The mesh settings of a cluster among its saved objects: `Null` for absent ones.
///
/// # Errors
/// A text, when they cannot be read.
pub fn saved_mesh_values(cluster: &Cluster, objects: &[Arc<Config>]) -> Result<Values, String> {
    let namespace = cluster.settings().namespace.as_str();
    let saved = |name: &str| {
        let is_it = |c: &&Arc<Config>| *c.meta.namespace == *namespace && *c.meta.name == *name;
        let found = objects.iter().filter(is_it).find_map(|c| c.config_map());
        parts(|key| found.as_ref()?.data.as_ref()?.get(key).map(String::as_str))
    };
    let shared = match cluster.settings().shared_mesh.as_str() {
        "" => Values::default(),
        shared => saved(shared)?,
    };
    Ok(joined(shared, saved(&name(cluster))?))
}

/// The mesh settings of a cluster as a source.
pub struct KubeMesh {
    cluster: Arc<Cluster>,
    mesh: MeshSettings,
    sink: Arc<dyn MeshSink>,
    current: Arc<Mutex<u64>>,
}

impl KubeMesh {
    /// The source; `current` are the settings that are in force already.
    #[must_use]
    pub fn new(cluster: Arc<Cluster>, mesh: MeshSettings, sink: Arc<dyn MeshSink>, current: &Mesh) -> Self {
        Self { cluster, mesh, sink, current: Arc::new(Mutex::new(current.stamp)) }
    }
}

impl Source for KubeMesh {
    fn id(&self) -> SourceId {
        format!("kube:{}/mesh", self.cluster.id()).into()
    }

    fn run(&self, port: SourcePort) -> BoxFuture<'static, anyhow::Result<()>> {
        let cluster = self.cluster.clone();
        let mut follower = MeshFollower {
            mesh: self.mesh.clone(),
            sink: self.sink.clone(),
            current: self.current.clone(),
            board: FeedBoard::new("configmaps".to_string()),
            port: port.clone(),
            cluster: cluster.clone(),
            read: BTreeMap::new(),
            bad: BTreeMap::new(),
            delivered: false,
            wrong: None,
        };
        async move {
            alone(&cluster, &mut follower, &port).await;
            Ok(())
        }
        .boxed()
    }
}

struct MeshFollower {
    cluster: Arc<Cluster>,
    mesh: MeshSettings,
    sink: Arc<dyn MeshSink>,
    current: Arc<Mutex<u64>>,
    board: FeedBoard,
    port: SourcePort,
    /// The last readable content of the ConfigMaps, by name.
    read: BTreeMap<String, Values>,
    /// Why those cannot be read that cannot, by name.
    bad: BTreeMap<String, String>,
    delivered: bool,
    /// Why the settings that the cluster holds are not in force, if they are not.
    wrong: Option<String>,
}

type Read = (String, Result<Values, String>);

/// A reason why settings are not in force.
fn stays(error: String) -> String {
    format!("{error}; the last good settings stay")
}

impl MeshFollower {
    /// Takes ConfigMaps in, together: one may have the settings that another lacks. Other ConfigMaps are ignored.
    async fn take(&mut self, reads: Vec<Read>) {
        let (own, shared) = (name(&self.cluster), self.cluster.settings().shared_mesh.clone());
        let mut all = self.read.clone();
        for (of, read) in reads.into_iter().filter(|(of, _)| *of == own || *of == shared) {
            match read {
                Ok(values) => {
                    self.bad.remove(&of);
                    all.insert(of, values);
                }
                Err(error) => drop(self.bad.insert(of, error)),
            }
        }
        let now = |name: &str| all.get(name).cloned().unwrap_or_default();
        let (config, networks) = joined(now(&shared), now(&own));
        let built = if all.is_empty() { Ok(None) } else { self.build(&config, &networks).map(Some) };
        let bad = self.bad.values().next().cloned();
        let error = match built {
            Ok(None) => bad.map(stays),
            Ok(Some(mesh)) => {
                self.read = all;
                self.hand_over(mesh).await.err().or(bad.map(stays))
            }
            Err(error) => Some(stays(error)),
        };
        if let Some(text) = error.as_ref().filter(|_| error != self.wrong) {
            tracing::warn!(source = &*self.port.board.read().source, "{text}");
        }
        (self.delivered, self.wrong) = (true, error);
        self.port.board.write(|r| r.objects = 1);
        self.show();
    }

    /// Writes the state of the source: the watch's, or else that of the settings.
    fn show(&self) {
        let feed = self.board.read();
        let trouble = matches!(feed.state, FeedState::Retrying | FeedState::Forbidden | FeedState::Absent);
        let error = if trouble { Some(feed.last_error.clone()) } else { self.wrong.clone() };
        self.port.board.write(|r| {
            if self.delivered || r.state != SourceState::Starting {
                r.state = if error.is_some() { SourceState::Stale } else { SourceState::Synced };
            }
            r.last_error = error.unwrap_or_default();
            r.feeds = vec![feed];
        });
    }

    fn build(&self, config: &Value, networks: &Value) -> Result<Mesh, String> {
        Mesh::validated(config, networks, &self.mesh.domain, &self.mesh.cluster_id).map_err(|e| e.to_string())
    }

    async fn hand_over(&self, mesh: Mesh) -> Result<(), String> {
        let stamp = mesh.stamp;
        let current = || self.current.lock();
        if *current() == stamp {
            return Ok(());
        }
        let warnings = mesh.warnings();
        self.sink.apply(Arc::new(mesh)).await.map_err(|e| e.to_string())?;
        *current() = stamp;
        for warning in warnings {
            tracing::warn!(source = &*self.port.board.read().source, "mesh config: {warning}");
        }
        Ok(())
    }
}

impl Follower for MeshFollower {
    type Object = RawObject;
    type Item = Read;

    fn target(&mut self) -> BoxFuture<'_, WatchTarget> {
        async {
            WatchTarget {
                resource: resource(Kind::ConfigMap, "v1"),
                namespace: Some(self.cluster.settings().namespace.clone()),
                // Two of them cannot be named.
                fields: self
                    .cluster
                    .settings()
                    .shared_mesh
                    .is_empty()
                    .then(|| format!("metadata.name={}", name(&self.cluster))),
                labels: None,
            }
        }
        .boxed()
    }

    fn read(&mut self, object: RawObject, _: bool) -> Read {
        let read = serde_json::from_str(object.text()).map_err(|e| e.to_string()).and_then(|object| values(&object));
        (object.name().to_string(), read)
    }

    /// A ConfigMap was deleted: its last settings stay in force, as in Istio.
    fn listed(&mut self, list: Vec<Read>) -> BoxFuture<'_, Result<(), End>> {
        async {
            self.bad.retain(|name, _| list.iter().any(|(of, _)| of == name));
            self.take(list).await;
            Ok(())
        }
        .boxed()
    }

    fn told(&mut self, changes: Vec<ObjectChange<Read>>) -> BoxFuture<'_, Result<(), End>> {
        async {
            let put = |change| match change {
                ObjectChange::Put(read) => Some(read),
                ObjectChange::Gone(_) => None,
            };
            self.take(changes.into_iter().filter_map(put).collect()).await;
            Ok(())
        }
        .boxed()
    }

    fn report(&mut self, change: &mut dyn FnMut(&mut FeedReport)) {
        self.board.write(change);
        self.show();
    }
}
