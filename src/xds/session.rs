//! One stream: its subscriptions by type, nonces, and what has to follow what.
//!
//! Make before break, for a client that is in use: clusters that it lacks come first, and it accepts them and is told their
//! endpoints before listeners and routes are sent, which may name them. Clusters that are gone, and their endpoints, are taken
//! away when it has accepted the listeners and routes, of which the ones before may have named them. Routes are not warmed and a
//! route to a cluster that is not there is a failed request, so any other order fails requests.
//!
//! Pure: requests and snapshots go in, responses come out. The loop around it does the waiting.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::{
    names::{NameSet, Scope},
    request::{MAX_NAMES, Request, RequestError},
    resource_type::{PerType, ResourceType, TypeSet},
    snapshot::Snapshot,
    subscription::{Received, Subscription},
    update::{Protocol, Update},
    updates::Updates,
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
        wire::grpc_frames(&head, self.update.body())
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
    /// Clusters that the client lacked were sent, and it may not have asked for their endpoints yet.
    arriving: bool,
    /// Types that are left with resources that are gone, until listeners and routes are accepted.
    keeping: TypeSet,
    /// The clusters among these.
    leaving: Arc<NameSet>,
    /// Clusters that are gone and that the client kept from an earlier stream.
    lost: Arc<NameSet>,
    /// Responses since the client last held routes and clusters that belong together.
    waited: u8,
}

/// So many responses may pass before nothing waits for other types any more: content that changes without end must not keep
/// routes from a client, nor leave it with what is gone.
const PATIENCE: u8 = 32;

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
            arriving: false,
            keeping: TypeSet::EMPTY,
            leaving: NameSet::empty(),
            lost: NameSet::empty(),
            waited: 0,
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
        // A client whose request for endpoints crossed a response repeats it with its next acknowledgement.
        self.arriving &= self.waits(ResourceType::Cluster) || self.waits(ResourceType::Endpoint);
        self.release();
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
        types.iter().for_each(|t| {
            self.pending.insert(t);
            self.keeping.remove(t);
        });
    }

    /// Whether a type waits for an acknowledgement.
    fn waits(&self, kind: ResourceType) -> bool {
        self.subscription(kind).is_some_and(Subscription::is_outstanding)
    }

    /// Whether there may be newer clusters, which are not looked at before the last ones are accepted.
    fn newer_clusters(&self) -> bool {
        self.waits(ResourceType::Cluster)
            && self.pending.contains(ResourceType::Cluster)
            && !self.keeps(ResourceType::Cluster)
    }

    /// Whether the client may still use listeners or routes that newer ones are to replace.
    fn routes_move(&self) -> bool {
        let moves = |kind| self.subscription(kind).is_some_and(|s| s.is_outstanding() || self.pending.contains(kind));
        moves(ResourceType::Listener) || moves(ResourceType::Route)
    }

    /// Whether something of the type is still to be sent, or to be looked for.
    #[must_use]
    pub const fn lacks(&self, kind: ResourceType) -> bool {
        self.pending.contains(kind)
    }

    /// Whether the client was left with resources of the type that are gone: it is sent the removals later.
    const fn keeps(&self, kind: ResourceType) -> bool {
        self.keeping.contains(kind)
    }

    /// The type to be looked at next and what to look up for it. A type waits while its last response is unacknowledged, and
    /// for what has to come before it.
    #[must_use]
    pub fn next(&self) -> Option<(ResourceType, &Scope)> {
        let newer_clusters = self.newer_clusters();
        let newer_endpoints = self.waits(ResourceType::Endpoint) && self.pending.contains(ResourceType::Endpoint);
        let (patient, routes_move) = (self.waited < PATIENCE, self.routes_move());
        self.pending.iter().find_map(|kind| {
            let subscription = self.subscription(kind).filter(|s| !s.is_outstanding())?;
            let asked = subscription.has_requests();
            let held = match kind {
                ResourceType::Cluster => self.keeps(kind) && routes_move && !asked,
                ResourceType::Endpoint if newer_clusters => !asked || subscription.is_claimed(),
                ResourceType::Endpoint => self.keeps(kind) && routes_move && !asked,
                ResourceType::Listener | ResourceType::Route => newer_clusters || newer_endpoints || self.arriving,
                _ => false,
            };
            (!held || !patient).then(|| (kind, subscription.scope()))
        })
    }

    /// Gives a type up until its content changes: there is no snapshot of it.
    pub fn pass(&mut self, kind: ResourceType) {
        self.pending.remove(kind);
    }

    /// What a type is sent so that the client comes to hold `target`, or for now something between that and what it holds
    /// ([`Session::lacks`]).
    pub fn offer(&mut self, kind: ResourceType, target: &Arc<Snapshot>, updates: &Updates) -> Option<Response> {
        let response = self.respond(kind, target, updates);
        self.release();
        response
    }

    fn respond(&mut self, kind: ResourceType, target: &Arc<Snapshot>, updates: &Updates) -> Option<Response> {
        let kept = self.keep(kind, target, updates);
        let target = kept.as_ref().unwrap_or(target);
        if kept.is_none() {
            self.pending.remove(kind);
        }
        self.waited = self.waited.saturating_add(1);
        let in_use = self.subscription(kind).is_some_and(Subscription::is_in_use);
        let next = self.counter + 1;
        let salt = self.salt;
        let subscription = self.types.get_mut(kind)?.as_mut()?;
        let sending = subscription.next(target, updates, || format!("{salt:08x}-{next:x}"))?;
        let nonce = subscription.nonce().to_string();
        self.counter = next;
        if kind == ResourceType::Cluster {
            self.arriving = in_use && sending.news.as_ref().is_none_or(|names| !names.is_empty());
            match sending.news {
                None => self.all_warm = true,
                Some(names) => self.warming.push(names),
            }
            self.warm_endpoints();
        }
        Some(Response { kind, nonce, update: sending.update })
    }

    /// `target` with those resources that the client holds and that are gone, while it may use routes that name them.
    fn keep(&mut self, kind: ResourceType, target: &Arc<Snapshot>, updates: &Updates) -> Option<Arc<Snapshot>> {
        if !matches!(kind, ResourceType::Cluster | ResourceType::Endpoint) {
            return None;
        }
        self.keeping.remove(kind);
        self.spare(kind, target);
        let unsettled = self.waited < PATIENCE && self.routes_move();
        let held = unsettled.then(|| self.subscription(kind)?.acked().cloned()).flatten();
        if kind == ResourceType::Cluster {
            let gone =
                |old: &Arc<Snapshot>| updates.between(kind, self.protocol, Some(old), target, &[]).gone().clone();
            self.leaving = held.as_ref().map_or_else(NameSet::empty, gone);
        }
        let held = held?;
        if kind == ResourceType::Endpoint && self.newer_clusters() {
            // Which clusters are to go is not known yet: only what was never told is told now.
            return updates.keeping(&held, target, &held.scope().names);
        }
        let kept = updates.keeping(&held, target, &self.leaving)?;
        self.keeping.insert(kind);
        Some(kept)
    }

    /// A client that comes back with clusters that are gone may have routes to them, which it has not asked for yet.
    fn spare(&mut self, kind: ResourceType, target: &Snapshot) {
        let Some(subscription) = self.types.get_mut(kind).and_then(Option::as_mut) else { return };
        if kind == ResourceType::Cluster {
            let lost = subscription.lost(target);
            if !lost.is_empty() {
                // Its acknowledgement comes after the requests for listeners and routes that it comes back with.
                subscription.owe();
                self.lost = lost;
            }
        }
        subscription.spare(self.lost.clone());
    }

    /// Lets go of what waited for the client to hold routes and clusters that belong together.
    fn release(&mut self) {
        let settled = !self.waits(ResourceType::Cluster) && !self.arriving && !self.routes_move();
        if settled && self.keeping.is_empty() {
            self.waited = 0;
        }
        if (settled || self.waited >= PATIENCE) && !self.lost.is_empty() {
            let lost = std::mem::replace(&mut self.lost, NameSet::empty());
            if let Some(clusters) = self.types.get_mut(ResourceType::Cluster).and_then(Option::as_mut) {
                clusters.again(lost);
                self.pending.insert(ResourceType::Cluster);
            }
        }
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
