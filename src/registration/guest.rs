//! A connection of a proxy that represents an entry, with its last health report.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::jiff::Timestamp;

use super::{EntryKey, plan::Said};
use crate::model::{Identity, Node};

/// A connection of a proxy that represents an entry.
#[derive(Debug, Clone)]
pub struct Guest {
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

/// The last health report of a connection. It outlives the ledger.
#[derive(Debug, Default)]
pub struct Health(Mutex<(Option<Said>, bool)>);

impl Health {
    fn lock(&self) -> MutexGuard<'_, (Option<Said>, bool)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a report; returns whether the actor must be notified, because no unread report was there.
    pub fn say(&self, said: Said) -> bool {
        let mut health = self.lock();
        health.0 = Some(said);
        !std::mem::replace(&mut health.1, true)
    }

    /// Takes the last report.
    pub fn take(&self) -> Option<Said> {
        let mut health = self.lock();
        health.1 = false;
        health.0.clone()
    }
}
