//! The table of reported loads: the counts that clients keep of their own requests, by cluster. Of bounded size; nothing depends on it.

use std::{collections::BTreeMap, time::SystemTime};

use parking_lot::Mutex;
use serde::Serialize;

use crate::proto::envoy::{
    config::endpoint::v3::{ClusterStats, UpstreamLocalityStats},
    service::load_stats::v3::LoadStatsRequest,
};

/// Clusters in the table.
const MOST_CLUSTERS: usize = 4096;
/// Bytes of a cluster's name.
const LONGEST_NAME: usize = 512;

/// The reports of all clients on one cluster since the start of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ClusterLoad {
    /// Requests that were sent.
    pub issued: u64,
    /// Requests that succeeded.
    pub successful: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that were dropped before they were sent.
    pub dropped: u64,
    /// Load reports (LRS) that the other counts are sums of.
    pub reports: u64,
    /// When the last report came.
    #[serde(serialize_with = "seconds")]
    pub at: Option<SystemTime>,
}

fn seconds<S: serde::Serializer>(at: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    let since = at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map(|since| since.as_secs()).serialize(serializer)
}

impl ClusterLoad {
    fn of(stats: &ClusterStats, at: SystemTime) -> Self {
        let sum = |count: fn(&UpstreamLocalityStats) -> u64| {
            stats.upstream_locality_stats.iter().map(count).fold(0, u64::saturating_add)
        };
        Self {
            issued: sum(|l| l.total_issued_requests),
            successful: sum(|l| l.total_successful_requests),
            failed: sum(|l| l.total_error_requests),
            dropped: stats.total_dropped_requests,
            reports: 1,
            at: Some(at),
        }
    }

    fn add(&mut self, other: &Self) {
        let add = |own: &mut u64, more: u64| *own = own.saturating_add(more);
        add(&mut self.issued, other.issued);
        add(&mut self.successful, other.successful);
        add(&mut self.failed, other.failed);
        add(&mut self.dropped, other.dropped);
        add(&mut self.reports, other.reports);
        self.at = other.at;
    }
}

/// The reports of all clients.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Loads {
    /// By cluster.
    pub clusters: BTreeMap<String, ClusterLoad>,
    /// Clusters that had no place, taken together.
    pub others: ClusterLoad,
}

impl Loads {
    fn take(&mut self, stats: &ClusterStats, at: SystemTime) -> ClusterLoad {
        let load = ClusterLoad::of(stats, at);
        let known = self.clusters.contains_key(&stats.cluster_name);
        if known || (self.clusters.len() < MOST_CLUSTERS && stats.cluster_name.len() <= LONGEST_NAME) {
            self.clusters.entry(stats.cluster_name.clone()).or_default().add(&load);
        } else {
            self.others.add(&load);
        }
        load
    }
}

/// The table of the process.
#[derive(Debug, Default)]
pub(super) struct LoadTable(Mutex<Loads>);

impl LoadTable {
    pub(super) fn all(&self) -> Loads {
        self.0.lock().clone()
    }

    pub(super) fn take(&self, request: &LoadStatsRequest, at: SystemTime) {
        let mut sum = ClusterLoad::default();
        let mut loads = self.0.lock();
        request.cluster_stats.iter().for_each(|stats| sum.add(&loads.take(stats, at)));
        drop(loads);
        metrics::counter!("pilot_load_reports").increment(sum.reports);
        for (outcome, count) in [("success", sum.successful), ("error", sum.failed), ("dropped", sum.dropped)] {
            metrics::counter!("pilot_load_reported_requests", "outcome" => outcome).increment(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(cluster: &str, issued: u64, failed: u64) -> ClusterStats {
        let locality = UpstreamLocalityStats {
            total_issued_requests: issued,
            total_error_requests: failed,
            total_successful_requests: issued - failed,
            ..Default::default()
        };
        ClusterStats {
            cluster_name: cluster.into(),
            upstream_locality_stats: vec![locality.clone(), locality],
            total_dropped_requests: 1,
            ..Default::default()
        }
    }

    #[test]
    fn reports_are_added_up_by_cluster() {
        let table = LoadTable::default();
        let at = SystemTime::UNIX_EPOCH;
        let request =
            LoadStatsRequest { cluster_stats: vec![stats("a", 5, 2), stats("b", 1, 0)], ..Default::default() };
        table.take(&request, at);
        table.take(&request, at);
        let of_a = ClusterLoad { issued: 20, successful: 12, failed: 8, dropped: 2, reports: 2, at: Some(at) };
        assert_eq!(table.all().clusters["a"], of_a);
        assert_eq!(table.all().others, ClusterLoad::default());
    }

    #[test]
    fn clients_cannot_make_the_table_grow() {
        let mut loads = Loads::default();
        for number in 0..MOST_CLUSTERS * 2 {
            loads.take(&stats(&number.to_string(), u64::MAX / 2, 0), SystemTime::UNIX_EPOCH);
        }
        loads.take(&stats(&"x".repeat(LONGEST_NAME + 1), 1, 0), SystemTime::UNIX_EPOCH);
        assert_eq!(loads.clusters.len(), MOST_CLUSTERS);
        assert_eq!((loads.others.reports, loads.others.issued), (MOST_CLUSTERS as u64 + 1, u64::MAX));
    }
}
