//! Changes by a test to a cluster: a client of its own, and servers with CRDs.

use std::{collections::BTreeMap, fs, path::Path};

use kube::{
    Client, Config,
    api::{Api, DeleteParams, DynamicObject, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{ApiResource, GroupVersionKind},
};
use pilothouse::{model::Kind, sources::yaml};
use serde_json::{Value, json};

use crate::server::Server;

const CRDS: &str = "../shared/conformance/crds";

/// A client of its own for the test's changes to the cluster.
pub struct Admin {
    client: Client,
}

impl Admin {
    /// A client of a server.
    pub async fn of(server: &Server) -> Self {
        let kubeconfig = Kubeconfig::read_from(&server.kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Self { client: Client::try_from(config).unwrap() }
    }

    /// A client of a server that tells every answer, also those that ask to try again.
    pub async fn without_retries(server: &Server) -> Client {
        let kubeconfig = Kubeconfig::read_from(&server.kubeconfig).unwrap();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        config.default_retry = false;
        Client::try_from(config).unwrap()
    }

    pub const fn client(&self) -> &Client {
        &self.client
    }

    pub fn api(&self, object: &Value) -> Api<DynamicObject> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
        let gvk = GroupVersionKind::gvk(group, version, text("/kind"));
        let plural = Kind::parse(text("/apiVersion"), text("/kind")).map(Kind::plural);
        let resource =
            plural.map_or_else(|| ApiResource::from_gvk(&gvk), |p| ApiResource::from_gvk_with_plural(&gvk, p));
        match text("/metadata/namespace") {
            "" => Api::all_with(self.client.clone(), &resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, &resource),
        }
    }

    pub async fn apply(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let parameters = PatchParams::apply("test").force();
        let applied = self.api(object).patch(name, &parameters, &Patch::Apply(object)).await;
        assert!(applied.is_ok(), "{object}: {applied:?}");
    }

    /// Applies an object as `kubectl apply --server-side` does: a field that its kind does not have is an error. The kind's CRD
    /// may have just come.
    pub async fn apply_strictly(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let parameters = PatchParams::apply("kubectl").validation_strict();
        let mut applied = self.api(object).patch(name, &parameters, &Patch::Apply(object)).await;
        for _ in 0..200 {
            if !matches!(&applied, Err(kube::Error::Api(status)) if status.code == 404) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            applied = self.api(object).patch(name, &parameters, &Patch::Apply(object)).await;
        }
        assert!(applied.is_ok(), "{object}: {applied:?}");
    }

    /// Applies an object of a kind whose CRD may have just come.
    pub async fn apply_soon(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        for _ in 0..200 {
            if self.api(object).patch(name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await.is_ok() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        self.apply(object).await;
    }

    /// Sets the status of an object as another field manager.
    pub async fn set_status(&self, object: &Value, status: Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let patch = Patch::Merge(json!({ "status": status }));
        let parameters = PatchParams { field_manager: Some("somebody".to_string()), ..PatchParams::default() };
        self.api(object).patch_status(name, &parameters, &patch).await.unwrap();
    }

    /// Compacts the history of etcd up to now.
    pub async fn compact(&self) {
        let request = http::Request::post("/testing/compact").body(Vec::new()).unwrap();
        self.client.request_text(request).await.unwrap();
    }

    /// The object as it is now.
    pub async fn get(&self, object: &Value) -> Value {
        let name = object["metadata"]["name"].as_str().unwrap();
        let found = self.api(object).get_opt(name).await.unwrap();
        found.map_or(Value::Null, |o| serde_json::to_value(o).unwrap())
    }

    pub async fn delete(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        self.api(object).delete(name, &DeleteParams::default()).await.unwrap();
    }
}

/// The documents of a text.
pub fn documents(text: &str) -> Vec<Value> {
    yaml::documents(text).iter().flat_map(|d| yaml::values(d.text).unwrap()).filter(|v| !v.is_null()).collect()
}

/// CRDs of the folder, by name.
fn crds(folder: &str) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(CRDS).join(folder)).unwrap() {
        for document in documents(&fs::read_to_string(entry.unwrap().path()).unwrap()) {
            if document["kind"] == "CustomResourceDefinition" {
                found.insert(document["metadata"]["name"].as_str().unwrap().to_string(), document);
            }
        }
    }
    found
}

/// The CRD of this name.
pub fn crd(name: &str) -> Value {
    ["istio", "gateway-api-standard"].iter().find_map(|folder| crds(folder).remove(name)).unwrap()
}

/// A server with namespaces and these CRDs, or `None` with the reason said.
pub async fn server(names: &[&str]) -> Option<(Server, Admin)> {
    server_with(&[], names).await
}

/// As [`server`], with more flags.
pub async fn server_with(flags: &[&str], names: &[&str]) -> Option<(Server, Admin)> {
    let server = Server::start(flags).await?;
    let admin = Admin::of(&server).await;
    for name in ["shop", "other", "istio-system"] {
        let labels = json!({"team": name});
        admin
            .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}))
            .await;
    }
    for name in names {
        admin.apply(&crd(name)).await;
    }
    Some((server, admin))
}

/// A server with all CRDs of Istio and Gateway API.
pub async fn everything() -> Option<(Server, Admin)> {
    let (server, admin) = server(&[]).await?;
    for definition in crds("istio").values().chain(crds("gateway-api-standard").values()) {
        admin.apply(definition).await;
    }
    Some((server, admin))
}
