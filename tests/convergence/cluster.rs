//! The API server of a run: a fake one, or the real API machinery with all CRDs.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use kube::{
    Error,
    api::{DeleteParams, Patch, PatchParams},
};
use pilothouse::model::Kind;
use serde_json::{Value, json};

use crate::{
    admin::{Admin, everything},
    fake::Fake,
    objects::{NAMESPACES, Object},
    server::Server,
    trace::place_of,
};

/// An API server whose objects a run changes.
pub enum Cluster {
    Fake(Fake),
    Real(Box<Real>),
}

/// The real API machinery, and the number of changes that it took and refused.
pub struct Real {
    server: Server,
    admin: Admin,
    taken: AtomicUsize,
    refused: AtomicUsize,
}

impl Cluster {
    /// A fake server of every kind.
    pub async fn fake() -> Self {
        let fake = Fake::start().await;
        // A cluster has the kinds before it has objects of them.
        Kind::ALL.iter().for_each(|kind| fake.serve_kind(kind.plural()));
        Self::Fake(fake)
    }

    /// The real API machinery; `None` where it cannot be had, with the reason said.
    pub async fn real() -> Option<Self> {
        let (server, admin) = everything().await?;
        for name in NAMESPACES {
            admin.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await;
        }
        let (taken, refused) = Default::default();
        Some(Self::Real(Box::new(Real { server, admin, taken, refused })))
    }

    /// A kubeconfig for it; that of a fake server is written into the folder.
    pub fn kubeconfig(&self, dir: &Path) -> PathBuf {
        let fake = match self {
            Self::Fake(fake) => fake,
            Self::Real(real) => return real.server.kubeconfig.clone(),
        };
        let path = dir.join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {{cluster: c, user: u}}\n\
             clusters:\n- name: c\n  cluster: {{server: \"{}\"}}\nusers:\n- name: u\n  user: {{}}\n",
            fake.url
        );
        fs::write(&path, text).unwrap();
        path
    }

    /// An object comes to be this, or goes.
    pub async fn edit(&self, key: &str, object: Option<&Object>) {
        match (self, object) {
            (Self::Fake(fake), None) => {
                let (resource, place) = place_of(key);
                fake.delete(&resource, &place);
            }
            (Self::Fake(fake), Some(object)) => {
                let (resource, place) = place_of(key);
                fake.put_raw(&resource, &place, |version| {
                    let mut value = object.value.clone();
                    value["metadata"]["resourceVersion"] = version.to_string().into();
                    value
                });
            }
            (Self::Real(real), None) => real.delete(key).await,
            (Self::Real(real), Some(object)) => real.put(&object.value).await,
        }
    }

    /// The changes that the real machinery took, and those that it refused.
    pub fn counts(&self) -> (usize, usize) {
        match self {
            Self::Fake(_) => (0, 0),
            Self::Real(real) => (real.taken.load(Ordering::Relaxed), real.refused.load(Ordering::Relaxed)),
        }
    }
}

impl Real {
    async fn put(&self, object: &Value) {
        let mut applied = self.apply(object).await;
        if matches!(&applied, Err(Error::Api(status)) if status.code == 422) {
            // Some fields of an object that is there never change: another object takes its place.
            self.remove(object).await;
            applied = self.apply(object).await;
        }
        let counter = if applied.is_ok() { &self.taken } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    async fn apply(&self, object: &Value) -> kube::Result<()> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let api = self.admin.api(object);
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await?;
        if let Some(status) = object.get("status") {
            api.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({ "status": status }))).await?;
        }
        Ok(())
    }

    async fn remove(&self, object: &Value) {
        // It may never have been there.
        let name = object["metadata"]["name"].as_str().unwrap();
        let _ = self.admin.api(object).delete(name, &DeleteParams::default().grace_period(0)).await;
    }

    /// A namespace that is deleted would stay without its controller: it loses its labels.
    async fn delete(&self, key: &str) {
        let mut parts = key.splitn(3, '/');
        let kind = parts.next().and_then(|kind| kind.split_once('.')).unwrap_or_default();
        let found = Kind::ALL.iter().find(|k| (k.as_str(), k.group()) == kind);
        let Some(found) = found else { return };
        let (namespace, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let object = json!({
            "apiVersion": found.api_version(), "kind": found.as_str(), "metadata": {"namespace": namespace, "name": name},
        });
        if *found == Kind::Namespace {
            self.put(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await;
        } else {
            self.remove(&object).await;
        }
    }
}
