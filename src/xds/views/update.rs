//! The content of a response: everything of it but the nonce, made and encoded once for any number of clients.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock, Weak},
};

use bytes::{Bytes, BytesMut};
use parking_lot::{Mutex, MutexGuard};

use super::snapshot::{Difference, Snapshot};
use crate::xds::{names::NameSet, resource_type::ResourceType, wire};

/// The two variants of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
pub enum Protocol {
    /// State of the world.
    Sotw,
    /// Incremental (delta).
    Delta,
}

/// The content of a response: everything of it but the nonce, for any number of clients.
#[derive(Debug)]
pub struct Update {
    /// The resources that are sent: for state-of-the-world types that are sent whole, all of them.
    pub difference: Arc<Difference>,
    kind: ResourceType,
    protocol: Protocol,
    version: String,
    encoded: Arc<Encoded>,
    budget: Option<Arc<EncodedBudget>>,
    names: OnceLock<Arc<NameSet>>,
    gone: OnceLock<Arc<NameSet>>,
}

impl Update {
    /// The content of a response that brings a client to `target`.
    #[must_use]
    pub fn new(kind: ResourceType, protocol: Protocol, difference: Difference, target: &Snapshot) -> Self {
        Self {
            difference: Arc::new(difference),
            kind,
            protocol,
            version: target.version(),
            encoded: Arc::default(),
            budget: None,
            names: OnceLock::new(),
            gone: OnceLock::new(),
        }
    }

    /// The same, its encoded bytes counted in `budget`.
    pub(crate) fn counted(mut self, budget: &Arc<EncodedBudget>) -> Self {
        self.budget = Some(budget.clone());
        self
    }

    /// Names of the resources that are sent.
    pub fn names(&self) -> &Arc<NameSet> {
        self.names.get_or_init(|| NameSet::of(self.difference.changed.iter().map(|r| r.name().clone())))
    }

    /// Names that are gone.
    pub fn gone(&self) -> &Arc<NameSet> {
        self.gone.get_or_init(|| NameSet::of(self.difference.gone.iter().cloned()))
    }

    /// The encoded response without its nonce. The bytes keep the update alive: while it is sent to one client, it is there for
    /// the next one.
    #[must_use]
    pub fn body(self: &Arc<Self>) -> Bytes {
        let mut place = self.encoded.lock();
        let bytes = match &*place {
            Some(bytes) => bytes.clone(),
            None => {
                let bytes = self.encode();
                *place = Some(bytes.clone());
                drop(place);
                if let Some(budget) = &self.budget {
                    budget.note(&self.encoded, bytes.len());
                }
                bytes
            }
        };
        Bytes::from_owner(Lent { bytes, _update: self.clone() })
    }

    fn encode(&self) -> Bytes {
        let gone: usize = self.difference.gone.iter().map(|n| n.len() + 8).sum();
        let mut out = BytesMut::with_capacity(self.weight() + gone + 128);
        wire::put_bytes(&mut out, 1, self.version.as_bytes());
        wire::put_bytes(&mut out, 4, self.kind.url().as_bytes());
        match self.protocol {
            Protocol::Sotw => self.difference.changed.iter().for_each(|r| r.put_sotw(&mut out)),
            Protocol::Delta => {
                self.difference.changed.iter().for_each(|r| r.put_delta(&mut out));
                self.difference.gone.iter().for_each(|n| wire::put_bytes(&mut out, 6, n.as_bytes()));
            }
        }
        out.freeze()
    }

    /// Bytes of the encoded response, whether it is encoded yet or not; the names that are gone do not count.
    pub(crate) fn weight(&self) -> usize {
        self.difference.changed.iter().map(|r| r.wire_len()).sum()
    }
}

/// Bytes in the hands of the transport.
struct Lent {
    bytes: Bytes,
    _update: Arc<Update>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The place of encoded bytes.
#[derive(Debug, Default)]
struct Encoded(Mutex<Option<Bytes>>);

impl Encoded {
    fn lock(&self) -> MutexGuard<'_, Option<Bytes>> {
        self.0.lock()
    }
}

/// Bounds the encoded bytes of all updates together. The oldest are dropped first, and encoded again on demand.
#[derive(Debug, Default)]
pub(crate) struct EncodedBudget {
    held: Mutex<VecDeque<(Weak<Encoded>, usize)>>,
}

/// Encoded bytes that may be held for clients that have yet to ask for them.
const ENCODED_BYTES: usize = 64 << 20;
/// Smaller updates are not counted: they take less than the resources in them.
const COUNTED_FROM: usize = 4 << 10;

impl EncodedBudget {
    fn note(&self, encoded: &Arc<Encoded>, length: usize) {
        if length < COUNTED_FROM {
            return;
        }
        let mut held = self.held.lock();
        held.retain(|(place, _)| place.strong_count() > 0);
        held.push_back((Arc::downgrade(encoded), length));
        let mut bytes: usize = held.iter().map(|(_, length)| length).sum();
        while bytes > ENCODED_BYTES {
            let Some((place, length)) = held.pop_front() else { return };
            bytes -= length;
            if let Some(place) = place.upgrade() {
                *place.lock() = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::{
        names::Scope,
        views::resource::{Block, Resource},
    };

    #[test]
    fn encoded_bytes_are_bounded_and_made_again() {
        let value = vec![7; ENCODED_BYTES / 3];
        let resource = Arc::new(Resource::of_parts("a", "t/x", &value));
        let target = Snapshot::new(vec![Block::build([resource.clone()], None)], Scope::all());
        let budget = Arc::new(EncodedBudget::default());
        let update = || {
            let difference = Difference::between(None, &target);
            Arc::new(Update::new(ResourceType::Cluster, Protocol::Sotw, difference, &target).counted(&budget))
        };
        let held: Vec<_> = (0..3).map(|_| update()).collect();
        let bodies: Vec<_> = held.iter().map(Update::body).collect();
        let there = || held.iter().map(|update| update.encoded.lock().is_some()).collect::<Vec<_>>();
        assert_eq!(there(), [false, true, true]);
        assert_eq!(held[0].body(), bodies[0]);
        assert_eq!(there(), [true, false, true]);
    }
}
