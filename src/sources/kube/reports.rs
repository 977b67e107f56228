//! Reports between processes, each in an annotation of a Lease of its own: leases are small and not watched, and their
//! holder is known by name.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::api::{DeleteParams, ListParams, PostParams};

use super::{KubeWriter, write::MANAGER};
use crate::sources::WriteError;

const ANNOTATION: &str = "pilothouse.io/distribution-report";
const LABEL: &str = "pilothouse.io/report-of-revision";

/// A report as its lease holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportLease {
    /// Whose it is.
    pub process: String,
    /// Its text; empty when there is nothing to say but that the process lives, and from processes of other revisions.
    pub text: String,
    /// Changes with every write.
    pub version: String,
    /// The time that it is valid after that.
    pub good_for: Duration,
}

/// Name of the lease that holds the report of a process.
fn lease_name(process: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    let end: String = process.chars().map(plain).collect();
    let start = end.len().saturating_sub(200);
    format!("pilothouse-report-{}", end.get(start..).unwrap_or_default().trim_matches(['-', '.']))
}

fn label(revision: &str) -> String {
    if revision.is_empty() { "default".to_string() } else { revision.to_string() }
}

impl KubeWriter {
    /// Puts the report of a process of this revision, which is good for so long (whole seconds).
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn put_report(
        &self,
        process: &str,
        revision: &str,
        text: String,
        good_for: Duration,
    ) -> Result<(), WriteError> {
        let (api, name) = (self.leases().await?, lease_name(process));
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            annotations: Some(BTreeMap::from([(ANNOTATION.to_string(), text)])),
            labels: Some(BTreeMap::from([(LABEL.to_string(), label(revision))])),
            ..ObjectMeta::default()
        };
        let spec = LeaseSpec {
            holder_identity: Some(process.to_string()),
            lease_duration_seconds: i32::try_from(good_for.as_secs()).ok(),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        };
        let mut lease = Lease { metadata, spec: Some(spec) };
        let params = PostParams { field_manager: Some(MANAGER.to_string()), ..PostParams::default() };
        let write = async move {
            let held = api.get_opt(&name).await?;
            lease.metadata.resource_version = held.and_then(|l| l.metadata.resource_version);
            match lease.metadata.resource_version {
                Some(_) => api.replace(&name, &params, &lease).await,
                None => api.create(&params, &lease).await,
            }
        };
        self.patient(write).await.map(drop)
    }

    /// The reports of all processes of every revision, with the texts of this one.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn reports(&self, revision: &str) -> Result<Vec<ReportLease>, WriteError> {
        let api = self.leases().await?;
        let params = ListParams::default().labels(LABEL);
        let list = self.patient(async move { api.list(&params).await }).await?;
        Ok(list.items.into_iter().filter_map(|lease| of_lease(lease, &label(revision))).collect())
    }

    /// Takes the report of a process away.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn drop_report(&self, process: &str) -> Result<(), WriteError> {
        let (api, name) = (self.leases().await?, lease_name(process));
        match self.patient(async move { api.delete(&name, &DeleteParams::default()).await }).await {
            Ok(_) | Err(WriteError::Gone) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn of_lease(lease: Lease, revision: &str) -> Option<ReportLease> {
    let (metadata, spec) = (lease.metadata, lease.spec?);
    let ours = metadata.labels.is_some_and(|labels| labels.get(LABEL).is_some_and(|of| of == revision));
    let text = metadata.annotations.and_then(|mut annotations| annotations.remove(ANNOTATION));
    let seconds = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok())?;
    Some(ReportLease {
        process: spec.holder_identity?,
        text: text.filter(|_| ours).unwrap_or_default(),
        version: metadata.resource_version.unwrap_or_default(),
        good_for: Duration::from_secs(seconds),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_leases_are_names() {
        assert_eq!(lease_name("Pod-7_00ff"), "pilothouse-report-pod-7-00ff");
        assert!(lease_name(&"x".repeat(900)).len() < 253);
    }
}
