//! The identities of connected clients that want something: a certificate, or an answer about them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::sync::Notify;

use crate::model::Identity;

/// An identity is kept for so long after its last client: a client that comes back finds its part.
const KEPT: Duration = Duration::from_secs(600);

/// The identities of connected clients.
#[derive(Debug, Default)]
pub(super) struct Holders {
    held: Mutex<BTreeMap<Identity, Holding>>,
    /// An identity is new.
    pub(super) wanted: Notify,
}

#[derive(Debug, Default)]
struct Holding {
    clients: usize,
    /// When the last client went.
    free_since: Option<SystemTime>,
}

/// A client's hold on the part of its identity; given back when it is dropped.
#[derive(Debug)]
pub struct IdentityHold {
    holders: Arc<Holders>,
    identity: Identity,
}

impl Drop for IdentityHold {
    fn drop(&mut self) {
        if let Some(holding) = self.holders.lock().get_mut(&self.identity) {
            holding.clients -= 1;
            if holding.clients == 0 {
                holding.free_since = Some(SystemTime::now());
            }
        }
    }
}

impl Holders {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Identity, Holding>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hold(self: &Arc<Self>, identity: &Identity) -> IdentityHold {
        let mut held = self.lock();
        let is_new = !held.contains_key(identity);
        let holding = held.entry(identity.clone()).or_default();
        holding.clients += 1;
        holding.free_since = None;
        drop(held);
        if is_new {
            self.wanted.notify_one();
        }
        IdentityHold { holders: self.clone(), identity: identity.clone() }
    }

    /// The identities that have clients, or had some a while ago, in order; others are forgotten.
    pub(super) fn current(&self, now: SystemTime) -> Vec<Identity> {
        let mut held = self.lock();
        let is_over = |holding: &Holding| {
            holding.clients == 0
                && holding.free_since.is_some_and(|since| now.duration_since(since).is_ok_and(|free| free > KEPT))
        };
        held.retain(|_, holding| !is_over(holding));
        held.keys().cloned().collect()
    }
}
