//! One stream: its subscriptions by type, nonces, and the order of types.
//!
//! Make before break, for a client that is in use: clusters that it lacks come first, and it accepts them and is told their
//! endpoints before listeners and routes are sent, which may name them. Clusters that are gone, and their endpoints, are taken
//! away when it has accepted the listeners and routes, of which the ones before may have named them. Routes are not warmed and a
//! route to a cluster that is not there is a failed request, so any other order fails requests.
//!
//! A client that names its clusters (gRPC) drops a name once the replacement is usable: until then it keeps a cluster that is
//! gone, with its old endpoints. One that comes back so is not told that a cluster is gone before it has accepted the routes.
//!
//! Every wait ends by time, whatever the client does: for other types, for an acknowledgement, for a name to be dropped.
//!
//! Pure: requests, snapshots and the time go in, responses come out. The loop around it does the waiting.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    channel::Channel,
    lists::ClientLists,
    refusals::Backoff,
    response::Response,
    subscription::{Received, Subscription},
};
use crate::xds::{
    names::{NameSet, Scope},
    resource_type::{PerType, ResourceType, TypeSet},
    views::{snapshot::Snapshot, update::Protocol, updates::Updates},
    wire::request::{MAX_NAMES, Request, RequestError},
};

/// The state of one stream.
#[derive(Debug)]
pub struct Session {
    protocol: Protocol,
    salt: u32,
    counter: u64,
    types: PerType<Channel>,
    /// Types whose content may have changed, or that are owed an answer.
    pending: TypeSet,
    /// All clusters may be warming, but endpoints are not subscribed to yet.
    all_warm: bool,
    /// Clusters that were sent and wait for endpoints, before endpoints are subscribed to.
    warming: Vec<Arc<NameSet>>,
    /// Clusters that the client lacked were sent, and it may not have asked for their endpoints yet.
    arriving: bool,
    /// The client asked for further endpoints since clusters were sent that it has not acknowledged, and has no answer.
    awaited: bool,
    /// Types whose removals wait for LDS and RDS ACKs, and until when.
    keeping: BTreeMap<ResourceType, Instant>,
    /// The clusters among these, and since when they are gone.
    leaving: BTreeMap<Arc<str>, Instant>,
    /// Clusters that are gone and that the client kept from an earlier stream.
    lost: Arc<NameSet>,
    /// Those that it was told of since: nothing is said of their endpoints, which it may still use for a moment.
    mourned: Arc<NameSet>,
    /// Clusters are not answered because of these.
    withheld: bool,
    /// Since when types wait for others.
    held: BTreeMap<ResourceType, Instant>,
    /// Types that are subscribed to.
    subscribed: TypeSet,
    /// The stream is of a service of one type: there is nothing to wait for.
    alone: bool,
    /// The lists of names that the clients of the server have in common.
    lists: Arc<ClientLists>,
    backoff: Backoff,
    now: Instant,
}

/// A type waits for others for so long: a client that does not answer, or content that changes without end, must not keep
/// routes from it, nor leave it with removed resources.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The requests with which a client comes back arrive within this time.
const FLIGHT: Duration = Duration::from_secs(1);
/// A client that names a cluster which is gone keeps it for so long.
pub(crate) const LINGER: Duration = Duration::from_secs(30);
/// Newer content waits for an acknowledgement for so long.
pub(crate) const UNANSWERED: Duration = Duration::from_secs(30);

impl Session {
    /// A fresh stream. `salt` tells its nonces from those of other streams.
    #[must_use]
    pub fn new(protocol: Protocol, salt: u32, backoff: Backoff, now: Instant) -> Self {
        Self {
            protocol,
            salt,
            counter: 0,
            types: PerType::default(),
            pending: TypeSet::EMPTY,
            all_warm: false,
            warming: Vec::new(),
            arriving: false,
            awaited: false,
            keeping: BTreeMap::new(),
            leaving: BTreeMap::new(),
            lost: NameSet::empty(),
            mourned: NameSet::empty(),
            withheld: false,
            held: BTreeMap::new(),
            subscribed: TypeSet::EMPTY,
            alone: false,
            lists: Arc::default(),
            backoff,
            now,
        }
    }

    /// The same for a service of one type, where no other type comes along.
    #[must_use]
    pub const fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// The same with the lists of names of other sessions.
    #[must_use]
    pub fn sharing(mut self, lists: &Arc<ClientLists>) -> Self {
        self.lists = lists.clone();
        self
    }

    /// The protocol that is spoken.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The subscription of a type.
    #[must_use]
    pub fn subscription(&self, kind: ResourceType) -> Option<&Subscription> {
        self.types.known(kind).and_then(Channel::subscription)
    }

    /// Takes a request of a type.
    ///
    /// # Errors
    /// [`RequestError`] when it is malformed or asks for too much; the stream should end.
    pub fn receive(&mut self, kind: ResourceType, request: &Request<'_>) -> Result<Received, RequestError> {
        let Some(channel) = self.types.get_mut(kind) else { return Ok(Received::Expired) };
        let received = match self.protocol {
            Protocol::Sotw => channel.receive_sotw(kind, request, &self.lists, self.now)?,
            Protocol::Delta => channel.receive_delta(kind, request, &self.lists, self.now)?,
        };
        match channel.subscription_mut() {
            Some(subscription) => {
                self.subscribed.insert(kind);
                if self.alone {
                    subscription.tell_losses();
                }
            }
            None => {
                self.subscribed.remove(kind);
                self.pending.remove(kind);
            }
        }
        if kind == ResourceType::Endpoint && received == Received::Started {
            self.warm_endpoints();
        }
        if kind == ResourceType::Cluster {
            self.let_go();
        }
        self.awaited = self.waits(ResourceType::Cluster)
            && (self.awaited
                || (kind == ResourceType::Endpoint && matches!(received, Received::Started | Received::Changed)));
        // A client whose request for endpoints crossed a response repeats it with its next acknowledgement.
        self.arriving &= self.waits(ResourceType::Cluster) || self.waits(ResourceType::Endpoint);
        if received == Received::Started || self.subscription(kind).is_some_and(Subscription::has_requests) {
            self.pending.insert(kind);
        }
        self.release();
        self.watch();
        let names: usize =
            self.types.iter().filter_map(Channel::subscription).map(|s| s.scope().names.names().len()).sum();
        if names > MAX_NAMES {
            return Err(RequestError::TooMany { what: "resource names on one stream", limit: MAX_NAMES });
        }
        Ok(received)
    }

    /// Says that the content of these types may have changed.
    pub fn mark(&mut self, types: TypeSet) {
        types.iter().for_each(|t| {
            self.pending.insert(t);
            self.keeping.remove(&t);
        });
        self.watch();
    }

    /// Tells the time. Waits that have lasted too long end.
    pub fn tick(&mut self, now: Instant) {
        self.now = now;
        let (backoff, salt) = (self.backoff, self.salt);
        for kind in self.subscribed.iter() {
            let Some(subscription) = self.types.get_mut(kind).and_then(Channel::subscription_mut) else { continue };
            if self.pending.contains(kind) && subscription.sent_at().is_some_and(|at| now >= at + UNANSWERED) {
                subscription.give_up();
            }
            if subscription.retry_at(backoff, salt).is_some_and(|at| now >= at) {
                subscription.retry();
                self.pending.insert(kind);
            }
        }
        self.release();
        self.watch();
    }

    /// When it wants to be told the time, if nothing happens before.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        let of_types = self.subscribed.iter().filter_map(|kind| {
            let subscription = self.subscription(kind)?;
            let unanswered = subscription.sent_at().filter(|_| self.pending.contains(kind)).map(|at| at + UNANSWERED);
            unanswered.or_else(|| subscription.retry_at(self.backoff, self.salt))
        });
        let held = self.held.iter().map(|(kind, since)| *since + self.limit(*kind));
        // Past responses have had their effect: the client may be slow to take them.
        of_types.chain(held).chain(self.keeping.values().copied()).filter(|at| *at > self.now).min()
    }

    /// Keeps the times since when types wait.
    fn watch(&mut self) {
        for kind in [ResourceType::Cluster, ResourceType::Endpoint, ResourceType::Listener, ResourceType::Route] {
            if self.pending.contains(kind) && self.waits_for_others(kind) {
                self.held.entry(kind).or_insert(self.now);
            } else {
                self.held.remove(&kind);
            }
        }
    }

    fn limit(&self, kind: ResourceType) -> Duration {
        if kind == ResourceType::Endpoint && self.flies_ahead() { FLIGHT } else { PATIENCE }
    }

    /// Whether the type has waited for others for long enough.
    fn is_overdue(&self, kind: ResourceType) -> bool {
        self.held.get(&kind).is_some_and(|since| self.now >= *since + self.limit(kind))
    }

    /// Whether a client comes back that asks for endpoints before it says which clusters it has.
    fn flies_ahead(&self) -> bool {
        let returns = self.subscription(ResourceType::Endpoint).is_some_and(Subscription::is_returning);
        returns && self.subscription(ResourceType::Cluster).is_none()
    }

    /// Whether the client names its clusters and its listeners or routes, so that it says itself when it is done with one.
    fn lets_go_itself(&self) -> bool {
        let named = self.subscription(ResourceType::Cluster).is_some_and(|s| !s.scope().wildcard);
        named && self.has_routes()
    }

    fn has_routes(&self) -> bool {
        let watched = |kind| self.subscription(kind).is_some();
        watched(ResourceType::Listener) || watched(ResourceType::Route)
    }

    /// For how long clusters that are gone may be kept.
    fn stay(&self) -> Duration {
        if self.lets_go_itself() { LINGER } else { PATIENCE }
    }

    /// Whether removals of a type are still withheld from the client.
    fn parting(&self, kind: ResourceType) -> bool {
        self.keeping.get(&kind).is_some_and(|until| self.now < *until) && (self.routes_move() || self.lets_go_itself())
    }

    /// Lets go of clusters that the client no longer names.
    fn let_go(&mut self) {
        let Some(scope) = self.subscription(ResourceType::Cluster).map(|s| s.scope().clone()) else {
            self.leaving.clear();
            (self.lost, self.withheld) = (NameSet::empty(), false);
            return;
        };
        let before = self.leaving.len();
        self.leaving.retain(|name, _| scope.contains(name));
        if self.leaving.len() != before {
            self.keeping.clear();
        }
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
    fn keeps(&self, kind: ResourceType) -> bool {
        self.keeping.contains_key(&kind)
    }

    /// Whether a type that may be sent has to wait for an earlier type.
    fn waits_for_others(&self, kind: ResourceType) -> bool {
        let Some(subscription) = self.subscription(kind).filter(|s| !s.is_outstanding()) else { return false };
        let asked = subscription.has_requests();
        match kind {
            ResourceType::Cluster => self.withheld,
            ResourceType::Endpoint if self.flies_ahead() => true,
            // Envoy acknowledges clusters when those that are new to it have their endpoints.
            ResourceType::Endpoint => self.newer_clusters() && !self.awaited && (!asked || subscription.is_claimed()),
            ResourceType::Listener | ResourceType::Route => {
                let newer_endpoints =
                    self.waits(ResourceType::Endpoint) && self.pending.contains(ResourceType::Endpoint);
                self.newer_clusters() || newer_endpoints || self.arriving
            }
            _ => false,
        }
    }

    /// The type to look at next and the names to look up for it. A type waits while its last response is unacknowledged, and
    /// for the types that have to come before it.
    #[must_use]
    pub fn next(&self) -> Option<(ResourceType, &Scope)> {
        self.pending.iter().find_map(|kind| {
            let subscription = self.subscription(kind).filter(|s| !s.is_outstanding())?;
            let kept = !subscription.has_requests() && self.parting(kind);
            let held = self.waits_for_others(kind) && !self.is_overdue(kind);
            (!kept && !held).then(|| (kind, subscription.scope()))
        })
    }

    /// Gives a type up until its content changes: there is no snapshot of it.
    pub fn pass(&mut self, kind: ResourceType) {
        self.pending.remove(kind);
        self.watch();
    }

    /// The next snapshot of a type on the client's way to `target`: that, or one between it and the held one
    /// ([`Session::lacks`]).
    pub fn offer(&mut self, kind: ResourceType, target: &Arc<Snapshot>, updates: &Updates) -> Option<Response> {
        let response = self.respond(kind, target, updates);
        self.release();
        self.watch();
        response
    }

    fn respond(&mut self, kind: ResourceType, target: &Arc<Snapshot>, updates: &Updates) -> Option<Response> {
        self.spare(kind, target);
        if kind == ResourceType::Cluster && self.withheld && !self.is_overdue(kind) {
            return None;
        }
        let kept = self.keep(kind, target, updates);
        let target = kept.as_ref().unwrap_or(target);
        if kept.is_none() {
            self.pending.remove(kind);
        }
        self.held.remove(&kind);
        self.awaited &= kind != ResourceType::Endpoint;
        let in_use = self.subscription(kind).is_some_and(Subscription::is_in_use);
        let next = self.counter + 1;
        let (salt, clock) = (self.salt, (self.now, self.backoff));
        let subscription = self.types.get_mut(kind)?.subscription_mut()?;
        let sending = subscription.next(target, updates, clock, || format!("{salt:08x}-{next:x}"))?;
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
        self.keeping.remove(&kind);
        let unsettled = self.routes_move() || self.lets_go_itself();
        let held = unsettled.then(|| self.subscription(kind)?.acked().cloned()).flatten();
        if kind == ResourceType::Cluster {
            self.part(held.as_deref(), target, updates);
        }
        let held = held?;
        if kind == ResourceType::Endpoint && self.newer_clusters() && !self.is_overdue(kind) {
            // The clusters to remove are not known yet: only clusters that were never sent are sent now.
            return updates.keeping(&held, target, &held.scope().names);
        }
        let stay = self.stay();
        let staying = self.leaving.iter().filter(|(_, since)| self.now < **since + stay);
        let until = staying.clone().map(|(_, since)| *since + stay).min()?;
        let kept = updates.keeping(&held, target, &NameSet::of(staying.map(|(name, _)| name.clone())))?;
        self.keeping.insert(kind, until);
        Some(kept)
    }

    /// Finds the clusters that are gone and may be kept.
    fn part(&mut self, held: Option<&Snapshot>, target: &Snapshot, updates: &Updates) {
        let before = std::mem::take(&mut self.leaving);
        let Some(held) = held else { return };
        let update = updates.between(ResourceType::Cluster, self.protocol, Some(held), target, &[]);
        let since = |name: &Arc<str>| before.get(name).copied().unwrap_or(self.now);
        let gone = update.gone().names().iter().filter(|name| held.get(name).is_some());
        let stay = self.stay();
        self.leaving =
            gone.map(|name| (name.clone(), since(name))).filter(|(_, since)| self.now < *since + stay).collect();
    }

    /// A client that comes back with clusters that are gone may have routes to them, which it has not asked for yet.
    fn spare(&mut self, kind: ResourceType, target: &Snapshot) {
        if !matches!(kind, ResourceType::Cluster | ResourceType::Endpoint) {
            return;
        }
        let unsettled = self.routes_move();
        let overdue = self.is_overdue(kind);
        let Some(subscription) = self.types.get_mut(kind).and_then(Channel::subscription_mut) else { return };
        if kind == ResourceType::Cluster {
            let lost = subscription.lost(target, unsettled);
            if !lost.is_empty() && !overdue {
                self.withheld = self.protocol == Protocol::Sotw;
                if !self.withheld {
                    // Its acknowledgement comes after the requests for listeners and routes that it comes back with.
                    subscription.owe();
                }
                self.lost = lost;
            }
        }
        if kind == ResourceType::Cluster {
            subscription.spare(self.lost.clone());
            if self.mourned.names().iter().any(|name| target.get(name).is_some()) {
                self.mourned = NameSet::of(self.mourned.names().iter().filter(|n| target.get(n).is_none()).cloned());
            }
        } else {
            subscription.spare(self.lost.plus(&self.mourned));
        }
    }

    /// Releases the responses that waited for the client to hold routes and clusters that belong together.
    fn release(&mut self) {
        if self.lost.is_empty() {
            return;
        }
        let settled = !self.waits(ResourceType::Cluster) && !self.arriving && !self.routes_move();
        let known = !self.withheld || self.has_routes();
        if (settled && known) || self.is_overdue(ResourceType::Cluster) {
            let lost = std::mem::replace(&mut self.lost, NameSet::empty());
            self.mourned = lost.clone();
            let withheld = std::mem::take(&mut self.withheld);
            if let Some(clusters) = self.types.get_mut(ResourceType::Cluster).and_then(Channel::subscription_mut) {
                clusters.tell_losses();
                if !withheld {
                    clusters.again(lost);
                }
                self.pending.insert(ResourceType::Cluster);
            }
        }
    }

    /// A cluster that was sent waits for endpoints, changed or not, before Envoy uses it.
    fn warm_endpoints(&mut self) {
        const FORGET_ABOVE: usize = 64;
        let Some(endpoints) = self.types.get_mut(ResourceType::Endpoint).and_then(Channel::subscription_mut) else {
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

#[cfg(test)]
mod tests;
