//! Bounds on the number of registered workloads per group and per peer, so that one client cannot invent workloads without
//! end. Pure.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use super::session::ProxySession;
use crate::discovery::RegistrationRefusal;

/// Bounds on registrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The number of entries made from one WorkloadGroup.
    pub per_group: usize,
    /// The number of registering connections from one address.
    pub per_peer: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_group: 20_000, per_peer: 2_000 }
    }
}

/// Namespace and name of a group.
type Group = (Arc<str>, Arc<str>);

/// The counts of connections and entries.
#[derive(Debug, Default)]
pub struct Counts {
    pub(super) limits: Limits,
    peers: HashMap<IpAddr, usize>,
    /// The address of each counted connection.
    connections: HashMap<u64, IpAddr>,
    groups: HashMap<Group, usize>,
}

impl Counts {
    /// Whether a proxy may register. `new`: it has no entry yet.
    ///
    /// # Errors
    /// [`RegistrationRefusal::Unavailable`], since other workloads may leave.
    pub fn admits(&self, session: &ProxySession, new: bool) -> Result<(), RegistrationRefusal> {
        if session.group.is_empty() {
            return Ok(());
        }
        let full = |what: String, bound: usize, flag: &str| {
            Err(RegistrationRefusal::Unavailable(format!(
                "auto-registration: {what} has {bound} workloads already ({flag})"
            )))
        };
        let Limits { per_group, per_peer } = self.limits;
        let group = (session.key.namespace.clone(), session.group.clone());
        if new && self.groups.get(&group).is_some_and(|n| *n >= per_group) {
            let group = format!("WorkloadGroup {}/{}", group.0, group.1);
            return full(group, per_group, "--max-registrations-per-group");
        }
        match session.peer {
            Some(peer) if self.peers.get(&peer).is_some_and(|n| *n >= per_peer) => {
                full(format!("the peer {peer}"), per_peer, "--max-registrations-per-peer")
            }
            _ => Ok(()),
        }
    }

    /// Counts a connection.
    pub fn join(&mut self, session: &ProxySession) {
        if let Some(peer) = session.peer.filter(|_| !session.group.is_empty())
            && self.connections.insert(session.id, peer).is_none()
        {
            *self.peers.entry(peer).or_default() += 1;
        }
    }

    /// Removes a connection from the counts.
    pub fn leave(&mut self, id: u64) {
        if let Some(peer) = self.connections.remove(&id) {
            less(&mut self.peers, &peer);
        }
    }

    /// Counts an entry that was, or will be, made from this group.
    pub fn begin(&mut self, group: Group) {
        *self.groups.entry(group).or_default() += 1;
    }

    /// Removes an entry of the group from the counts.
    pub fn end(&mut self, group: &Group) {
        less(&mut self.groups, group);
    }
}

fn less<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}
