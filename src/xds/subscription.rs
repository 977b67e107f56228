//! One type on one stream: what the client asks for, what it holds as far as we know, and what it is sent next.
//!
//! Both protocols run on the same state: `base` is what the client acknowledged, a response is the difference from there to
//! the newest snapshot, at most one response is unacknowledged, and newer content replaces what waits. No I/O, no clock.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    claims::Claims,
    names::{NameSet, Scope},
    request::{Complaint, Request, RequestError},
    resource_type::ResourceType,
    snapshot::{Difference, Snapshot},
    update::{Protocol, Update},
    updates::{Updates, add_again},
};

/// What a client holds.
#[derive(Debug)]
enum Base {
    Nothing,
    /// What a delta client says it kept from an earlier stream.
    Claimed(Arc<Claims>),
    Snapshot(Arc<Snapshot>),
}

#[derive(Debug)]
struct Outstanding {
    target: Arc<Snapshot>,
    sent: Arc<Difference>,
}

/// What a request meant for its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// The first request of the type, or a renewed one: it is answered.
    Started,
    /// The last response was accepted (the subscription may have changed too).
    Acked,
    /// The last response was refused.
    Nacked(Complaint),
    /// It only changed the subscription, or nothing.
    Changed,
    /// It answered a response that is not the last one.
    Expired,
    /// The client wants nothing of this type any more.
    Ended,
}

/// The state of one type on one stream.
#[derive(Debug)]
pub struct Subscription {
    kind: ResourceType,
    protocol: Protocol,
    scope: Scope,
    /// Hash of the names as the client last wrote them: an equal list need not be parsed.
    raw_hash: u128,
    ever_named: bool,
    base: Base,
    /// Content that the client refused, by name (0: a removal); it is not sent again until it changes.
    rejected: BTreeMap<Arc<str>, u128>,
    /// Names to be sent although they may not have changed.
    again: Vec<Arc<NameSet>>,
    everything_again: bool,
    /// Names that a client which claims to hold them is told nothing of for now.
    spared: Arc<NameSet>,
    /// A response is owed even if there is nothing in it.
    owed: bool,
    nonce: String,
    outstanding: Option<Outstanding>,
}

/// What is to be sent.
#[derive(Debug, Clone)]
pub struct Sending {
    /// The content of the response.
    pub update: Arc<Update>,
    /// Names whose content changes for the client; `None` means all.
    pub news: Option<Arc<NameSet>>,
}

impl Subscription {
    fn new(kind: ResourceType, protocol: Protocol, scope: Scope) -> Self {
        Self {
            kind,
            protocol,
            ever_named: !scope.names.is_empty(),
            scope,
            raw_hash: 0,
            base: Base::Nothing,
            rejected: BTreeMap::new(),
            again: Vec::new(),
            everything_again: false,
            spared: NameSet::empty(),
            owed: false,
            nonce: String::new(),
            outstanding: None,
        }
    }

    /// What is asked for.
    #[must_use]
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Nonce of the last response; empty when there was none.
    #[must_use]
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// Whether a response waits for its acknowledgement.
    #[must_use]
    pub const fn is_outstanding(&self) -> bool {
        self.outstanding.is_some()
    }

    /// What the client acknowledged last on this stream.
    #[must_use]
    pub const fn acked(&self) -> Option<&Arc<Snapshot>> {
        match &self.base {
            Base::Snapshot(snapshot) => Some(snapshot),
            _ => None,
        }
    }

    /// Names that the client says it kept from an earlier stream, or asks for beside everything, and that are not in `target`.
    /// One that only asks by name is to be answered by name: nothing counts as lost for it.
    #[must_use]
    pub fn lost(&self, target: &Snapshot) -> Arc<NameSet> {
        match &self.base {
            Base::Claimed(claims) if self.scope.wildcard => {
                let asked = target.scope().names.names().iter().filter(|n| target.get(n).is_none());
                claims.gone(target).plus(&NameSet::of(asked.cloned()))
            }
            _ => NameSet::empty(),
        }
    }

    /// Whether the client holds something, be it from an earlier stream.
    #[must_use]
    pub const fn is_in_use(&self) -> bool {
        !matches!(self.base, Base::Nothing)
    }

    /// Whether all that is known of what the client holds is what it says.
    #[must_use]
    pub const fn is_claimed(&self) -> bool {
        matches!(self.base, Base::Claimed(_))
    }

    /// Leaves the client with what it says it kept of these names, for now.
    pub fn spare(&mut self, names: Arc<NameSet>) {
        self.spared = names;
    }

    /// Answers even if there is nothing to say.
    pub const fn owe(&mut self) {
        self.owed = true;
    }

    /// What the client was sent last on this stream.
    #[must_use]
    pub fn sent(&self) -> Option<&Arc<Snapshot>> {
        self.outstanding.as_ref().map(|o| &o.target).or(self.acked())
    }

    /// Takes a state-of-the-world request, in the order of Istio's `ShouldRespond`. `None` as state means that the type is
    /// not subscribed to.
    ///
    /// # Errors
    /// [`RequestError`] when names are malformed or too many.
    pub fn receive_sotw(
        state: &mut Option<Self>,
        kind: ResourceType,
        request: &Request<'_>,
    ) -> Result<Received, RequestError> {
        let nonce_fits = |s: &Self| !s.nonce.is_empty() && request.nonce == s.nonce.as_bytes();
        let ends = request.names.count == 0 && !kind.is_wildcard();
        match state {
            Some(current) if request.error.is_some() && !nonce_fits(current) => return Ok(Received::Expired),
            _ if ends && request.error.is_none() => {
                *state = None;
                return Ok(Received::Ended);
            }
            Some(current) if !request.nonce.is_empty() => {
                if !nonce_fits(current) {
                    current.overlook_sotw(request)?;
                    return Ok(Received::Expired);
                }
                let received = current.settle(request.error.clone());
                if !ends {
                    current.rename_sotw(request)?;
                }
                return Ok(received);
            }
            _ => {}
        }
        let (star, names) = request.names.parse_set()?;
        let wildcard = star || (names.is_empty() && kind.is_wildcard());
        let mut fresh = Self::new(kind, Protocol::Sotw, Scope { wildcard, names });
        fresh.raw_hash = request.names.hash;
        fresh.ever_named |= star;
        fresh.owed = kind.is_whole();
        // A response that crossed the request may still be answered under its nonce.
        fresh.nonce = state.take().map_or_else(String::new, |before| before.nonce);
        *state = Some(fresh);
        Ok(Received::Started)
    }

    /// An expired request does not change the subscription. But what it no longer names the client has dropped, and should
    /// the client's next valid request name it again, only this tells that it has to be sent again.
    fn overlook_sotw(&mut self, request: &Request<'_>) -> Result<(), RequestError> {
        if request.names.hash != self.raw_hash && request.names.count > 0 {
            let (_, names) = request.names.parse_set()?;
            self.again(self.scope.names.minus(&names));
        }
        Ok(())
    }

    fn rename_sotw(&mut self, request: &Request<'_>) -> Result<(), RequestError> {
        if request.names.hash == self.raw_hash {
            return Ok(());
        }
        let (star, names) = request.names.parse_set()?;
        self.raw_hash = request.names.hash;
        self.ever_named |= star || !names.is_empty();
        let wildcard = star || (names.is_empty() && !self.ever_named);
        let added = names.minus(&self.scope.names);
        self.again(added);
        self.everything_again |= wildcard && !self.scope.wildcard;
        self.scope = Scope { wildcard, names };
        Ok(())
    }

    /// Takes a delta request.
    ///
    /// A subscription to a name that is subscribed already is answered again when the request is no acknowledgement (the
    /// client may have dropped the resource); one that comes with an acknowledgement is not, or a client that repeats its
    /// names would never come to rest.
    ///
    /// # Errors
    /// [`RequestError`] when names are malformed or too many.
    pub fn receive_delta(
        state: &mut Option<Self>,
        kind: ResourceType,
        request: &Request<'_>,
    ) -> Result<Received, RequestError> {
        let Some(current) = state else {
            *state = Some(Self::start_delta(kind, request)?);
            return Ok(Received::Started);
        };
        let received = if request.nonce.is_empty() {
            Received::Changed
        } else if request.nonce == current.nonce.as_bytes() {
            current.settle(request.error.clone())
        } else {
            // Names are told once only, so they count even though the acknowledgement does not.
            Received::Expired
        };
        current.rename_delta(request, received == Received::Changed)?;
        Ok(received)
    }

    fn start_delta(kind: ResourceType, request: &Request<'_>) -> Result<Self, RequestError> {
        let (star, subscribed) = request.names.parse_set()?;
        let (_, unsubscribed) = request.unsubscribe.parse_set()?;
        let claims = request.claims()?;
        let wildcard = star || (subscribed.is_empty() && kind.is_wildcard());
        let mut names = subscribed;
        if !kind.is_wildcard() && !wildcard {
            names = claims.as_ref().map_or_else(|| names.clone(), |claims| names.plus(claims.names()));
        }
        let names = if unsubscribed.is_empty() { names } else { names.minus(&unsubscribed) };
        let mut fresh = Self::new(kind, Protocol::Delta, Scope { wildcard, names });
        fresh.owed = wildcard && claims.is_none();
        fresh.base = claims.map_or(Base::Nothing, Base::Claimed);
        Ok(fresh)
    }

    fn rename_delta(&mut self, request: &Request<'_>, spontaneous: bool) -> Result<(), RequestError> {
        if request.names.count == 0 && request.unsubscribe.count == 0 {
            return Ok(());
        }
        let (star, subscribed) = request.names.parse_set()?;
        let (no_star, unsubscribed) = request.unsubscribe.parse_set()?;
        let mut names = self.scope.names.plus(&subscribed);
        if !unsubscribed.is_empty() {
            names = names.minus(&unsubscribed);
        }
        let again = if spontaneous { subscribed } else { subscribed.minus(&unsubscribed).minus(&self.scope.names) };
        self.again(again);
        self.everything_again |= star && (spontaneous || !self.scope.wildcard);
        let wildcard = (self.scope.wildcard || star) && !no_star;
        self.scope = Scope { wildcard, names };
        Ok(())
    }

    /// Asks for these names to be sent although they may not have changed.
    pub fn again(&mut self, names: Arc<NameSet>) {
        const MERGE_ABOVE: usize = 8;
        if names.is_empty() || self.again.iter().any(|known| Arc::ptr_eq(known, &names)) {
            return;
        }
        self.again.push(names);
        if self.again.len() > MERGE_ABOVE {
            let all = self.again.drain(..).flat_map(|set| set.names().to_vec()).collect::<Vec<_>>();
            self.again.push(NameSet::of(all));
        }
    }

    /// Asks for everything to be sent although it may not have changed.
    pub const fn everything_again(&mut self) {
        self.everything_again = true;
    }

    /// Whether something is to be sent although no content changed.
    #[must_use]
    pub const fn has_requests(&self) -> bool {
        self.everything_again || self.owed || !self.again.is_empty()
    }

    fn settle(&mut self, error: Option<Complaint>) -> Received {
        match (self.outstanding.take(), error) {
            (Some(outstanding), None) => {
                if self.protocol == Protocol::Sotw && self.kind.is_whole() {
                    self.rejected.clear();
                } else if !self.rejected.is_empty() {
                    let sent = &outstanding.sent;
                    for name in sent.changed.iter().map(|r| r.name()).chain(&sent.gone) {
                        self.rejected.remove(name);
                    }
                }
                self.base = Base::Snapshot(outstanding.target);
                Received::Acked
            }
            (Some(outstanding), Some(complaint)) => {
                let sent = &outstanding.sent;
                self.rejected.extend(sent.changed.iter().map(|r| (r.name().clone(), r.hash())));
                self.rejected.extend(sent.gone.iter().map(|n| (n.clone(), 0)));
                Received::Nacked(complaint)
            }
            (None, Some(complaint)) => Received::Nacked(complaint),
            (None, None) => Received::Changed,
        }
    }

    /// What is to be sent so that the client comes to hold `target`, if anything. The response is unacknowledged from here
    /// on; `nonce` is its nonce.
    pub fn next(
        &mut self,
        target: &Arc<Snapshot>,
        updates: &Updates,
        nonce: impl FnOnce() -> String,
    ) -> Option<Sending> {
        if self.outstanding.is_some() {
            return None;
        }
        let sending = self.compute(target, updates);
        self.again.clear();
        self.everything_again = false;
        let Some(sending) = sending else {
            self.base = Base::Snapshot(target.clone());
            return None;
        };
        self.owed = false;
        self.nonce = nonce();
        self.outstanding = Some(Outstanding { target: target.clone(), sent: sending.update.difference.clone() });
        Some(sending)
    }

    fn compute(&self, target: &Arc<Snapshot>, updates: &Updates) -> Option<Sending> {
        let whole = self.protocol == Protocol::Sotw && self.kind.is_whole();
        let between = |old, again: &[_]| updates.between(self.kind, self.protocol, old, target, again);
        let everything = self.everything_again || matches!(self.base, Base::Nothing);
        let plain = match &self.base {
            _ if !self.rejected.is_empty() => None,
            Base::Nothing => Some(between(None, &[])),
            Base::Claimed(_) if self.everything_again => None,
            Base::Claimed(claims) => Some(updates.from_claims(self.kind, claims, target, &self.spared, &self.again)),
            Base::Snapshot(_) if self.everything_again && self.protocol == Protocol::Delta => None,
            Base::Snapshot(_) if self.everything_again => Some(between(None, &[])),
            Base::Snapshot(base) => Some(between(Some(base.as_ref()), &self.again)),
        };
        let update = plain.unwrap_or_else(|| {
            let difference = self.own_difference(target);
            Arc::new(Update::new(self.kind, self.protocol, difference, target))
        });
        let difference = &update.difference;
        let asked = |set: &Arc<NameSet>| set.names().iter().any(|n| self.scope.names.contains(n));
        let silent = match self.protocol {
            Protocol::Sotw if !whole => difference.changed.is_empty(),
            _ => difference.is_empty() && !self.owed && !(whole && self.again.iter().any(asked)),
        };
        if silent {
            return None;
        }
        let news = if everything { None } else { Some(update.names().clone()) };
        let update =
            if whole { updates.whole(self.kind, self.protocol, self.acked().map(Arc::as_ref), target) } else { update };
        Some(Sending { update, news })
    }

    /// The difference for this client alone: it claims versions, refused something, or wants all again.
    fn own_difference(&self, target: &Arc<Snapshot>) -> Difference {
        let mut difference = match &self.base {
            Base::Nothing => Difference::between(None, target),
            Base::Claimed(claims) => claims.difference(target).sparing(&self.spared),
            Base::Snapshot(base) => Difference::between(Some(base), target),
        };
        if !self.rejected.is_empty() {
            self.heed_rejections(&mut difference, target);
        }
        if self.everything_again {
            difference.changed = Difference::between(None, target).changed;
        }
        add_again(&mut difference, target, &self.again);
        difference
    }

    /// Content that the client refused is not sent again as it was. When some of it changed, all that was refused with it
    /// goes out once more, since nobody knows how much of a refused response a client applied.
    fn heed_rejections(&self, difference: &mut Difference, target: &Snapshot) {
        let hash_now = |name: &str| target.get(name).map_or(0, |r| r.hash());
        difference.changed.retain(|r| self.rejected.get(r.name()) != Some(&r.hash()));
        let wanted = |name: &Arc<str>| target.scope().contains(name);
        if self.rejected.iter().any(|(name, refused)| !wanted(name) || hash_now(name) != *refused) {
            let names = NameSet::of(self.rejected.keys().filter(|n| wanted(n)).cloned());
            add_again(difference, target, &[names]);
        } else if difference.changed.is_empty() && difference.gone.iter().all(|n| self.rejected.get(n) == Some(&0)) {
            difference.gone.clear();
        } else {
            let removals = self.rejected.iter().filter(|(name, refused)| **refused == 0 && wanted(name));
            difference.gone.extend(removals.map(|(name, _)| name.clone()));
        }
    }
}
