//! The ports of the reporter on a Kubernetes cluster.

use std::time::Duration;

use futures::{FutureExt, future::BoxFuture};
use serde_json::Value;

use super::{
    election::Record,
    exchange::ReportStore,
    ports::{Fresh, LeaseStore, StatusSink},
};
use crate::{
    model::Config,
    sources::{
        WriteError,
        kube::{KubeWriter, LeaseRecord, ReportLease},
    },
};

/// Writes statuses to a cluster.
pub struct ClusterStatuses(pub KubeWriter);

/// A lease of a cluster.
pub struct ClusterLease {
    /// Client of the cluster.
    pub writer: KubeWriter,
    /// Name of the Lease object.
    pub name: String,
}

/// Reports, each in a Lease of its process; read by polling, without a watch.
pub struct ClusterReports {
    /// Client of the cluster.
    pub writer: KubeWriter,
    /// Revision of the reports: proxies of other revisions are counted by their own control planes.
    pub revision: String,
}

fn fresh(mut object: Value) -> Fresh {
    Fresh {
        version: object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_string(),
        generation: object["metadata"]["generation"].as_i64().unwrap_or_default(),
        status: object["status"].take(),
    }
}

impl StatusSink for ClusterStatuses {
    fn apply(&self, config: &Config, version: &str, status: &Value) -> BoxFuture<'static, Result<Fresh, WriteError>> {
        let (writer, config) = (self.0.clone(), config.clone());
        let (version, status) = (version.to_string(), status.clone());
        async move { Ok(fresh(writer.apply_status(&config, &version, &status).await?)) }.boxed()
    }

    fn fetch(&self, config: &Config) -> BoxFuture<'static, Result<Fresh, WriteError>> {
        let (writer, config) = (self.0.clone(), config.clone());
        async move { Ok(fresh(writer.fetch(&config).await?)) }.boxed()
    }
}

impl ReportStore for ClusterReports {
    fn put(&self, name: &str, text: &str, good_for: Duration) -> BoxFuture<'static, Result<(), WriteError>> {
        let (writer, revision) = (self.writer.clone(), self.revision.clone());
        let (name, text) = (name.to_string(), text.to_string());
        async move { writer.put_report(&name, &revision, text, good_for).await }.boxed()
    }

    fn all(&self) -> BoxFuture<'static, Result<Vec<ReportLease>, WriteError>> {
        let (writer, revision) = (self.writer.clone(), self.revision.clone());
        async move { writer.reports(&revision).await }.boxed()
    }

    fn take_away(&self, name: &str) -> BoxFuture<'static, Result<(), WriteError>> {
        let (writer, name) = (self.writer.clone(), name.to_string());
        async move { writer.drop_report(&name).await }.boxed()
    }
}

impl LeaseStore for ClusterLease {
    fn read(&self) -> BoxFuture<'static, Result<Option<Record>, WriteError>> {
        let (writer, name) = (self.writer.clone(), self.name.clone());
        async move {
            let read = writer.read_lease(&name).await?;
            Ok(read.map(|r| Record {
                holder: r.holder,
                duration: Duration::from_secs(r.seconds.into()),
                transitions: r.transitions,
                acquired: r.acquired,
                version: r.version,
            }))
        }
        .boxed()
    }

    fn write(&self, record: Record) -> BoxFuture<'static, Result<(), WriteError>> {
        let (writer, name) = (self.writer.clone(), self.name.clone());
        let lease = LeaseRecord {
            holder: record.holder,
            seconds: u32::try_from(record.duration.as_secs()).unwrap_or(u32::MAX),
            transitions: record.transitions,
            acquired: record.acquired,
            version: record.version,
        };
        async move { writer.write_lease(&name, lease).await }.boxed()
    }
}
