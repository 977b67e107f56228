//! One stream: its subscriptions by type, nonces, and what has to follow what.
//!
//! Pure: requests and snapshots go in, responses come out. The loop around it does the waiting.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::{
    names::{NameSet, Scope},
    request::{MAX_NAMES, Request, RequestError},
    resource_type::{PerType, ResourceType, TypeSet},
    snapshot::{Protocol, Snapshot, Update, Updates},
    subscription::{Received, Subscription},
    wire,
};

/// A response to one client.
#[derive(Debug, Clone)]
pub struct Response {
    /// Its type.
    pub kind: ResourceType,
    /// Its nonce.
    pub nonce: String,
    /// Its content, which many clients share.
    pub update: Arc<Update>,
}

impl Response {
    /// The pieces of the gRPC message.
    #[must_use]
    pub fn frames(&self) -> (Bytes, Option<Bytes>) {
        let mut head = BytesMut::with_capacity(self.nonce.len() + 4);
        wire::put_bytes(&mut head, 5, self.nonce.as_bytes());
        wire::grpc_frames(&head, self.update.body().clone())
    }
}

/// The state of one stream.
#[derive(Debug)]
pub struct Session {
    protocol: Protocol,
    salt: u32,
    counter: u64,
    types: PerType<Option<Subscription>>,
    /// Types whose content may have changed, or that are owed an answer.
    pending: TypeSet,
    /// All clusters may be warming, but endpoints are not subscribed to yet.
    all_warm: bool,
    /// Clusters that were sent and wait for endpoints, before endpoints are subscribed to.
    warming: Vec<Arc<NameSet>>,
}

impl Session {
    /// A fresh stream. `salt` tells its nonces from those of other streams.
    #[must_use]
    pub fn new(protocol: Protocol, salt: u32) -> Self {
        Self {
            protocol,
            salt,
            counter: 0,
            types: PerType::default(),
            pending: TypeSet::EMPTY,
            all_warm: false,
            warming: Vec::new(),
        }
    }

    /// The protocol that is spoken.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The subscription of a type.
    #[must_use]
    pub fn subscription(&self, kind: ResourceType) -> Option<&Subscription> {
        self.types.known(kind).and_then(Option::as_ref)
    }

    /// Takes a request of a type.
    ///
    /// # Errors
    /// [`RequestError`] when it is malformed or asks for too much; the stream should end.
    pub fn receive(&mut self, kind: ResourceType, request: &Request<'_>) -> Result<Received, RequestError> {
        let Some(state) = self.types.get_mut(kind) else { return Ok(Received::Expired) };
        let received = match self.protocol {
            Protocol::Sotw => Subscription::receive_sotw(state, kind, request)?,
            Protocol::Delta => Subscription::receive_delta(state, kind, request)?,
        };
        if kind == ResourceType::Endpoint && received == Received::Started {
            self.warm_endpoints();
        }
        if received == Received::Started || self.subscription(kind).is_some_and(Subscription::has_requests) {
            self.pending.insert(kind);
        }
        let names: usize = self.types.iter().flatten().map(|s| s.scope().names.names().len()).sum();
        if names > MAX_NAMES {
            return Err(RequestError::TooMany { what: "resource names on one stream", limit: MAX_NAMES });
        }
        Ok(received)
    }

    /// Says that the content of these types may have changed.
    pub fn mark(&mut self, types: TypeSet) {
        types.iter().for_each(|t| self.pending.insert(t));
    }

    /// The type to be looked at next and what to look up for it. A type waits while its last response is unacknowledged;
    /// listeners and routes also wait while newer clusters do, so that they never name a cluster that the client lacks.
    #[must_use]
    pub fn next(&self) -> Option<(ResourceType, &Scope)> {
        let clusters_wait = self.pending.contains(ResourceType::Cluster)
            && self.subscription(ResourceType::Cluster).is_some_and(Subscription::is_outstanding);
        self.pending.iter().find_map(|kind| {
            let subscription = self.subscription(kind).filter(|s| !s.is_outstanding())?;
            let held = clusters_wait && matches!(kind, ResourceType::Listener | ResourceType::Route);
            (!held).then(|| (kind, subscription.scope()))
        })
    }

    /// Gives a type up until its content changes: there is no snapshot of it.
    pub fn pass(&mut self, kind: ResourceType) {
        self.pending.remove(kind);
    }

    /// What a type is sent so that the client comes to hold `target`.
    pub fn offer(&mut self, kind: ResourceType, target: &Arc<Snapshot>, updates: &Updates) -> Option<Response> {
        self.pending.remove(kind);
        let next = self.counter + 1;
        let salt = self.salt;
        let subscription = self.types.get_mut(kind)?.as_mut()?;
        let sending = subscription.next(target, updates, || format!("{salt:08x}-{next:x}"))?;
        let nonce = subscription.nonce().to_string();
        self.counter = next;
        if kind == ResourceType::Cluster {
            match sending.news {
                None => self.all_warm = true,
                Some(names) => self.warming.push(names),
            }
            self.warm_endpoints();
        }
        Some(Response { kind, nonce, update: sending.update })
    }

    /// A cluster that was sent waits for endpoints, changed or not, before Envoy uses it.
    fn warm_endpoints(&mut self) {
        const FORGET_ABOVE: usize = 64;
        let Some(endpoints) = self.types.get_mut(ResourceType::Endpoint).and_then(Option::as_mut) else {
            if self.warming.len() > FORGET_ABOVE {
                self.warming.clear();
                self.all_warm = true;
            }
            return;
        };
        if std::mem::take(&mut self.all_warm) {
            endpoints.everything_again();
        }
        self.warming.drain(..).for_each(|names| endpoints.again(names));
        if endpoints.has_requests() {
            self.pending.insert(ResourceType::Endpoint);
        }
    }
}
