//! The objects in which a cluster keeps a certificate authority: Secrets of the control plane's namespace, and the ConfigMap
//! that tells each namespace the roots.

use std::collections::BTreeMap;

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};

use super::{KubeWriter, write::MANAGER};
use crate::sources::WriteError;

/// The place of a text in the ConfigMaps of the namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MapPlace {
    /// Name of the ConfigMap.
    pub name: &'static str,
    /// Key in it.
    pub key: &'static str,
}

/// The roots, as pods of a mesh mount them.
pub const ROOT_CERT_MAP: MapPlace = MapPlace { name: "istio-ca-root-cert", key: "root-cert.pem" };
/// The list of revoked certificates, as Istio's agent reads it.
pub const CRL_MAP: MapPlace = MapPlace { name: "istio-ca-crl", key: "ca-crl.pem" };

/// The content of a Secret.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SecretContent {
    /// Values by key.
    pub data: BTreeMap<String, Vec<u8>>,
    /// Resource version; empty for a Secret that does not exist.
    pub version: String,
}

impl std::fmt::Debug for SecretContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretContent").field("version", &self.version).finish_non_exhaustive()
    }
}

impl KubeWriter {
    async fn secrets(&self) -> Result<Api<Secret>, WriteError> {
        Ok(Api::namespaced(self.client().await?, self.own_namespace()))
    }

    /// Reads a Secret of the control plane's namespace; `None` when there is none.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn read_secret(&self, name: &str) -> Result<Option<SecretContent>, WriteError> {
        let api = self.secrets().await?;
        let secret = self.patient(async move { api.get_opt(name).await }).await?;
        Ok(secret.map(|secret| SecretContent {
            data: secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect(),
            version: secret.metadata.resource_version.unwrap_or_default(),
        }))
    }

    /// Writes a Secret of the control plane's namespace, if it still has the content's version; without one it is created.
    ///
    /// # Errors
    /// [`WriteError`]; `Conflict` where another process was first.
    pub async fn write_secret(&self, name: &str, kind: &str, content: SecretContent) -> Result<(), WriteError> {
        let api = self.secrets().await?;
        let params = PostParams { field_manager: Some(MANAGER.to_string()), ..PostParams::default() };
        let create = content.version.is_empty();
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.to_string()),
                resource_version: Some(content.version).filter(|version| !version.is_empty()),
                ..ObjectMeta::default()
            },
            data: Some(content.data.into_iter().map(|(key, value)| (key, ByteString(value))).collect()),
            type_: Some(kind.to_string()),
            ..Secret::default()
        };
        let write = async move {
            if create { api.create(&params, &secret).await } else { api.replace(name, &params, &secret).await }
        };
        self.patient(write).await.map(drop)
    }

    /// Puts this text and these labels into a ConfigMap of any namespace; it is created where it is missing.
    ///
    /// # Errors
    /// [`WriteError`]; `Gone` where the namespace is missing.
    pub async fn apply_config_map(
        &self,
        namespace: &str,
        place: &MapPlace,
        labels: &[(&str, &str)],
        text: &str,
    ) -> Result<(), WriteError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client().await?, namespace);
        let owned = |pairs: &[(&str, &str)]| {
            Some(pairs.iter().map(|(key, value)| ((*key).to_string(), (*value).to_string())).collect())
        };
        let map = ConfigMap {
            metadata: ObjectMeta { name: Some(place.name.to_string()), labels: owned(labels), ..ObjectMeta::default() },
            data: owned(&[(place.key, text)]),
            ..ConfigMap::default()
        };
        let params = PatchParams::apply(MANAGER).force();
        self.patient(async move { api.patch(place.name, &params, &Patch::Apply(&map)).await }).await.map(drop)
    }
}
