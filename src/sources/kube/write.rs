//! Writing to a cluster: statuses by server-side apply under our own name, and the lease of the writer.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{
    Api, Client, Error,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{Cluster, RawObject, groups::resource, watch_error::of_error};
use crate::{model::Config, sources::WriteError};

/// The name under which we own the fields that we write.
pub const MANAGER: &str = "pilothouse";
/// The time limit of a write.
const PATIENCE: Duration = Duration::from_secs(10);

/// The lease as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseRecord {
    /// Its holder; empty for none.
    pub holder: String,
    /// The time that it lasts without a renewal, in whole seconds.
    pub seconds: u32,
    /// The number of changes of the holder.
    pub transitions: i32,
    /// When the holder got it (RFC 3339); empty for now.
    pub acquired: String,
    /// Resource version; empty for a lease that does not exist.
    pub version: String,
}

/// Writes to one cluster.
#[derive(Clone)]
pub struct KubeWriter {
    cluster: Arc<Cluster>,
}

impl KubeWriter {
    /// A writer of statuses and leases of this cluster.
    #[must_use]
    pub const fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster }
    }

    /// Applies our part of a status to an object that still has this resource version; gives the object as it is stored.
    /// Fields that others own are taken over.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn apply_status(&self, config: &Config, version: &str, status: &Value) -> Result<Value, WriteError> {
        let meta = &config.meta;
        let mut body = json!({
            "apiVersion": &*meta.api_version, "kind": config.kind().as_str(),
            "metadata": {"name": &*meta.name, "resourceVersion": version}, "status": status,
        });
        if !meta.namespace.is_empty() {
            body["metadata"]["namespace"] = (*meta.namespace).into();
        }
        let params = PatchParams::apply(MANAGER).force();
        let (api, name) = (self.api(config).await?, meta.name.to_string());
        self.patient(async move { api.patch_status(&name, &params, &Patch::Apply(&body)).await }).await.and_then(parsed)
    }

    /// Reads an object.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn fetch(&self, config: &Config) -> Result<Value, WriteError> {
        let (api, name) = (self.api(config).await?, config.meta.name.to_string());
        self.patient(async move { api.get(&name).await }).await.and_then(parsed)
    }

    /// Reads a lease of the control plane's namespace; `None` when there is none.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn read_lease(&self, name: &str) -> Result<Option<LeaseRecord>, WriteError> {
        let api = self.leases().await?;
        let lease = self.patient(async move { api.get_opt(name).await }).await?;
        Ok(lease.map(record))
    }

    /// Writes a lease of the control plane's namespace, if it still has the record's version; without one it is created.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn write_lease(&self, name: &str, record: LeaseRecord) -> Result<(), WriteError> {
        let api = self.leases().await?;
        let params = PostParams { field_manager: Some(MANAGER.to_string()), ..PostParams::default() };
        let create = record.version.is_empty();
        let lease = lease(name, record);
        let write = async move {
            if create { api.create(&params, &lease).await } else { api.replace(name, &params, &lease).await }
        };
        self.patient(write).await.map(drop)
    }

    /// The control plane's namespace.
    pub(super) fn own_namespace(&self) -> &str {
        &self.cluster.settings().namespace
    }

    /// Shorter than the rest of a lease whose holder has stopped renewing it.
    fn patience(&self) -> Duration {
        let lease = self.cluster.settings().lease;
        PATIENCE.min(lease.duration.saturating_sub(lease.renew) * 2 / 3)
    }

    async fn api(&self, config: &Config) -> Result<Api<RawObject>, WriteError> {
        let client = self.client().await?;
        let version = config.meta.api_version.rsplit('/').next().unwrap_or_default();
        let resource = resource(config.kind(), version);
        Ok(match &*config.meta.namespace {
            "" => Api::all_with(client, &resource),
            namespace => Api::namespaced_with(client, namespace, &resource),
        })
    }

    pub(super) async fn client(&self) -> Result<Client, WriteError> {
        self.cluster.client().await.map_err(|e| WriteError::Other(e.to_string()))
    }

    pub(super) async fn leases(&self) -> Result<Api<Lease>, WriteError> {
        let client = self.client().await?;
        Ok(Api::namespaced(client, self.own_namespace()))
    }

    pub(super) async fn patient<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Result<T, WriteError> {
        let patience = self.patience();
        match tokio::time::timeout(patience, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Error::Api(status))) if status.code == 409 => Err(WriteError::Conflict),
            Ok(Err(Error::Api(status))) if status.code == 404 => Err(WriteError::Gone),
            Ok(Err(error @ Error::Api(_))) if matches!(&error, Error::Api(status) if status.code == 403) => {
                Err(WriteError::Forbidden(of_error(&error)))
            }
            Ok(Err(error)) => {
                if matches!(&error, Error::Api(status) if status.code == 401) {
                    self.cluster.forget_client();
                }
                let text = of_error(&error);
                let unanswered = matches!(error, Error::Service(_) | Error::HyperError(_));
                Err(if unanswered { WriteError::Unreachable(text) } else { WriteError::Other(text) })
            }
            Err(_) => Err(WriteError::Unreachable(format!("no answer within {} ms", patience.as_millis()))),
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the form of and_then")]
pub(super) fn parsed(object: RawObject) -> Result<Value, WriteError> {
    serde_json::from_str(object.text()).map_err(|e| WriteError::Other(e.to_string()))
}

fn record(lease: Lease) -> LeaseRecord {
    let spec = lease.spec.unwrap_or_default();
    LeaseRecord {
        holder: spec.holder_identity.unwrap_or_default(),
        seconds: spec.lease_duration_seconds.and_then(|s| u32::try_from(s).ok()).unwrap_or_default(),
        transitions: spec.lease_transitions.unwrap_or_default(),
        acquired: spec.acquire_time.map(|t| t.0.to_string()).unwrap_or_default(),
        version: lease.metadata.resource_version.unwrap_or_default(),
    }
}

fn lease(name: &str, record: LeaseRecord) -> Lease {
    let now = Timestamp::now();
    let acquired = record.acquired.parse().unwrap_or(now);
    let spec = LeaseSpec {
        holder_identity: Some(record.holder),
        lease_duration_seconds: Some(i32::try_from(record.seconds).unwrap_or(i32::MAX).max(1)),
        lease_transitions: Some(record.transitions),
        acquire_time: Some(MicroTime(acquired)),
        renew_time: Some(MicroTime(now)),
        ..LeaseSpec::default()
    };
    let version = Some(record.version).filter(|v| !v.is_empty());
    let metadata = ObjectMeta { name: Some(name.to_string()), resource_version: version, ..ObjectMeta::default() };
    Lease { metadata, spec: Some(spec) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_keeps_when_it_was_acquired() {
        let acquired = "2026-01-02T03:04:05.000006Z";
        let written = LeaseRecord {
            holder: "a".into(),
            seconds: 30,
            transitions: 2,
            acquired: acquired.into(),
            version: "7".into(),
        };
        let lease = lease("l", written.clone());
        assert_eq!(record(lease.clone()), written);
        assert!(lease.spec.and_then(|s| s.renew_time).is_some_and(|t| t.0.to_string() != acquired));
        let fresh = super::lease("l", LeaseRecord { acquired: String::new(), version: String::new(), ..written });
        assert!(fresh.metadata.resource_version.is_none());
    }
}
