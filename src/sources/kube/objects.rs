//! Writing whole objects to a cluster: read, created, patched and deleted, each only as the caller saw it.

use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::Value;

use super::{
    KubeWriter, RawObject,
    groups::resource,
    write::{MANAGER, parsed},
};
use crate::{model::Kind, sources::WriteError};

/// Kind, namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRef {
    /// Kind of the object.
    pub kind: Kind,
    /// `apiVersion` as it is written.
    pub api_version: String,
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl KubeWriter {
    async fn api_of(&self, place: &ObjectRef) -> Result<Api<RawObject>, WriteError> {
        let client = self.client().await?;
        let resource = resource(place.kind, place.api_version.rsplit('/').next().unwrap_or_default());
        Ok(match place.namespace.as_str() {
            "" => Api::all_with(client, &resource),
            namespace => Api::namespaced_with(client, namespace, &resource),
        })
    }

    /// Reads an object; `None` when there is none.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn find(&self, place: &ObjectRef) -> Result<Option<Value>, WriteError> {
        let api = self.api_of(place).await?;
        let found = self.patient(async move { api.get_opt(&place.name).await }).await?;
        found.map(parsed).transpose()
    }

    /// Creates an object; gives it as it is stored.
    ///
    /// # Errors
    /// [`WriteError::Conflict`] when it exists, and the others.
    pub async fn create(&self, place: &ObjectRef, document: &Value) -> Result<Value, WriteError> {
        let client = self.client().await?;
        let version = place.api_version.rsplit('/').next().unwrap_or_default();
        let resource = resource(place.kind, version);
        let api: Api<kube::api::DynamicObject> = Api::namespaced_with(client, &place.namespace, &resource);
        let other = |e: serde_json::Error| WriteError::Other(e.to_string());
        let object = serde_json::from_value(document.clone()).map_err(other)?;
        let params = PostParams { field_manager: Some(MANAGER.to_string()), ..PostParams::default() };
        let created = self.patient(async move { api.create(&params, &object).await }).await?;
        serde_json::to_value(created).map_err(other)
    }

    /// Applies a merge patch to an object, or to its status; a `resourceVersion` in it must be the stored one. Gives the
    /// object as it is stored.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn merge(&self, place: &ObjectRef, patch: &Value, status: bool) -> Result<Value, WriteError> {
        let (api, patch) = (self.api_of(place).await?, Patch::Merge(patch));
        let params = PatchParams { field_manager: Some(MANAGER.to_string()), ..PatchParams::default() };
        let name = &place.name;
        let write = async move {
            if status { api.patch_status(name, &params, &patch).await } else { api.patch(name, &params, &patch).await }
        };
        self.patient(write).await.and_then(parsed)
    }

    /// Deletes an object that still has this resource version.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn delete(&self, place: &ObjectRef, version: &str) -> Result<(), WriteError> {
        let api = self.api_of(place).await?;
        let preconditions = Preconditions { resource_version: Some(version.to_string()), uid: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        self.patient(async move { api.delete(&place.name, &params).await }).await.map(drop)
    }
}
