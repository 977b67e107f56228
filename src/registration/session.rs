//! A connection of a proxy that represents an entry, with its last health report.

use std::{net::IpAddr, sync::Arc};

use k8s_openapi::jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};

use super::{EntryKey, plan::HealthReport};
use crate::model::{Identity, Node};

/// A connection of a proxy that represents an entry.
#[derive(Debug, Clone)]
pub struct ProxySession {
    /// Number of the connection.
    pub id: u64,
    /// The entry of the proxy.
    pub key: EntryKey,
    /// The group to make the entry from; empty when it is not made.
    pub group: Arc<str>,
    /// The proxy's node.
    pub node: Arc<Node>,
    /// The identity that the proxy authenticated with.
    pub identity: Option<Identity>,
    /// The address that the proxy connects from.
    pub peer: Option<IpAddr>,
    /// Time of the connection.
    pub at: Timestamp,
    /// The last health report of the workload.
    pub health: Arc<Health>,
}

/// The last health report of a connection. It outlives the registrations.
#[derive(Debug, Default)]
pub struct Health(Mutex<(Option<HealthReport>, bool)>);

impl Health {
    fn lock(&self) -> MutexGuard<'_, (Option<HealthReport>, bool)> {
        self.0.lock()
    }

    /// Stores a report; returns whether the actor must be notified, because no unread report was there.
    pub fn say(&self, report: HealthReport) -> bool {
        let mut health = self.lock();
        health.0 = Some(report);
        !std::mem::replace(&mut health.1, true)
    }

    /// Takes the last report.
    pub fn take(&self) -> Option<HealthReport> {
        let mut health = self.lock();
        health.1 = false;
        health.0.clone()
    }
}
