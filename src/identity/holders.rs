//! The identities of connected clients that want something: a certificate, or an answer about them (with the cluster that is
//! asked).

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::model::{Identity, SecretReader};

/// An identity is kept for so long after its last client: a client that comes back finds its part.
const KEPT: Duration = Duration::from_secs(600);

/// The identities of connected clients; `K` is an identity, or one with more.
#[derive(Debug)]
pub struct Holders<K: Ord = Identity> {
    held: Mutex<BTreeMap<K, Holding>>,
    /// An identity is new.
    pub(super) wanted: Notify,
}

#[derive(Debug, Default)]
struct Holding {
    clients: usize,
    /// When the last client went.
    free_since: Option<SystemTime>,
}

impl<K: Ord> Default for Holders<K> {
    fn default() -> Self {
        Self { held: Mutex::default(), wanted: Notify::new() }
    }
}

/// A client's hold on the part of its identity; given back when it is dropped.
#[derive(Debug)]
pub struct Hold<K: Ord> {
    holders: Arc<Holders<K>>,
    key: K,
}

/// A hold on a certificate.
pub type IdentityHold = Hold<Identity>;
/// A hold on an answer about Secrets.
pub type SecretReaderHold = Hold<SecretReader>;

impl<K: Ord> Drop for Hold<K> {
    fn drop(&mut self) {
        if let Some(holding) = self.holders.lock().get_mut(&self.key) {
            holding.clients -= 1;
            if holding.clients == 0 {
                holding.free_since = Some(SystemTime::now());
            }
        }
    }
}

impl<K: Ord> Holders<K> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, Holding>> {
        self.held.lock()
    }
}

impl<K: Ord + Clone> Holders<K> {
    pub(super) fn hold(self: &Arc<Self>, key: &K) -> Hold<K> {
        let mut held = self.lock();
        let is_new = !held.contains_key(key);
        let holding = held.entry(key.clone()).or_default();
        holding.clients += 1;
        holding.free_since = None;
        drop(held);
        if is_new {
            self.wanted.notify_one();
        }
        Hold { holders: self.clone(), key: key.clone() }
    }

    /// Those that have clients, or had some a while ago, in order; others are forgotten.
    pub(super) fn current(&self, now: SystemTime) -> Vec<K> {
        let mut held = self.lock();
        let is_over = |holding: &Holding| {
            holding.clients == 0
                && holding.free_since.is_some_and(|since| now.duration_since(since).is_ok_and(|free| free > KEPT))
        };
        held.retain(|_, holding| !is_over(holding));
        held.keys().cloned().collect()
    }
}
