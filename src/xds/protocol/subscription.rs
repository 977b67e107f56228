//! One type on one stream: the subscription of the client, the resources that it holds, and its next response.
//!
//! Both protocols run on the same state: `base` is the acknowledged snapshot, a response is the difference from there to
//! the newest snapshot, at most one response is awaited, and newer content replaces waiting content. Content that a client refuses
//! is sent again after a pause that grows ([`super::refusals`]). No I/O, no clock: the time is an argument.

use std::{sync::Arc, time::Instant};

use super::{
    lists::ClientLists,
    refusals::{Backoff, RefusedContent},
};
use crate::xds::{
    names::{NameSet, Scope},
    resource_type::ResourceType,
    views::{
        claims::Claims,
        snapshot::{Difference, Snapshot},
        update::{Protocol, Update},
        updates::{Updates, add_again},
    },
    wire::request::{Complaint, Request, RequestError},
};

/// The content that a client holds.
#[derive(Debug)]
enum Base {
    Nothing,
    /// The resources that a delta client kept from an earlier stream, as it says.
    Claimed(Arc<Claims>),
    Snapshot(Arc<Snapshot>),
}

#[derive(Debug)]
struct Outstanding {
    target: Arc<Snapshot>,
    sent: Arc<Difference>,
    /// The part of it that the client lacks: all of it, but for types that are sent whole.
    news: Arc<Difference>,
    at: Instant,
}

/// The meaning of a request for its type.
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
    pub(crate) raw_hash: u128,
    base: Base,
    refused: RefusedContent,
    /// The client holds content of the type from an earlier stream, as its first request shows (state of the world).
    pub(crate) returns: bool,
    /// It is told the removals among that.
    told: bool,
    /// Names to be sent although they may not have changed.
    again: Vec<Arc<NameSet>>,
    everything_again: bool,
    /// Names of responses that were given up, which the client does not ask for any more. A response that it reads late, when
    /// it asks for everything again, leaves it with them.
    doubtful: Arc<NameSet>,
    /// Names that a client which claims to hold them is told nothing of for now.
    spared: Arc<NameSet>,
    /// A response is owed even if there is nothing in it.
    pub(crate) owed: bool,
    pub(crate) nonce: String,
    outstanding: Option<Outstanding>,
}

/// The content that is to be sent.
#[derive(Debug, Clone)]
pub struct Sending {
    /// The content of the response.
    pub update: Arc<Update>,
    /// Names whose content changes for the client; `None` means all.
    pub news: Option<Arc<NameSet>>,
    /// The part that the client lacks: all of the update, but for types that are sent whole.
    pub(super) difference: Arc<Difference>,
}

impl Subscription {
    pub(crate) fn new(kind: ResourceType, protocol: Protocol, scope: Scope) -> Self {
        Self {
            kind,
            protocol,
            scope,
            raw_hash: 0,
            base: Base::Nothing,
            refused: RefusedContent::default(),
            returns: false,
            told: false,
            again: Vec::new(),
            everything_again: false,
            doubtful: NameSet::empty(),
            spared: NameSet::empty(),
            owed: false,
            nonce: String::new(),
            outstanding: None,
        }
    }

    /// The scope that is asked for.
    #[must_use]
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Nonce of the last response; empty when there was none.
    #[must_use]
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// Whether a request answers the last response.
    pub(crate) fn is_answered_by(&self, request: &Request<'_>) -> bool {
        self.nonce.as_bytes() == request.nonce
    }

    /// The nonce of the last response, for the channel to remember.
    pub(crate) fn into_nonce(self) -> String {
        self.nonce
    }

    /// Whether a response waits for its acknowledgement.
    #[must_use]
    pub const fn is_outstanding(&self) -> bool {
        self.outstanding.is_some()
    }

    /// The snapshot that the client acknowledged last on this stream.
    #[must_use]
    pub const fn acked(&self) -> Option<&Arc<Snapshot>> {
        match &self.base {
            Base::Snapshot(snapshot) => Some(snapshot),
            _ => None,
        }
    }

    /// Names that the client kept from an earlier stream, or asks for beside everything, and that are not in `target`. A client
    /// that only asks by name keeps them if it says so, or if its routes are on their way (`unsettled`); in delta it is
    /// answered by name otherwise.
    #[must_use]
    pub fn lost(&self, target: &Snapshot, unsettled: bool) -> Arc<NameSet> {
        let missing = || NameSet::of(target.scope().names.names().iter().filter(|n| target.get(n).is_none()).cloned());
        match &self.base {
            _ if self.told => NameSet::empty(),
            Base::Claimed(claims) if self.scope.wildcard => claims.gone(target).plus(&missing()),
            Base::Claimed(claims) if unsettled => claims.gone(target),
            Base::Nothing if self.protocol == Protocol::Sotw && !self.scope.wildcard && (self.returns || unsettled) => {
                missing()
            }
            _ => NameSet::empty(),
        }
    }

    /// Whether the client holds content from an earlier stream and has been told nothing on this one.
    #[must_use]
    pub const fn is_returning(&self) -> bool {
        self.returns && !self.told && matches!(self.base, Base::Nothing)
    }

    /// Whether the client holds something, also from an earlier stream.
    #[must_use]
    pub const fn is_in_use(&self) -> bool {
        !matches!(self.base, Base::Nothing)
    }

    /// Whether the client's own claim is all that is known of its resources.
    #[must_use]
    pub const fn is_claimed(&self) -> bool {
        matches!(self.base, Base::Claimed(_))
    }

    /// Leaves the client its claimed resources of these names, for now.
    pub fn spare(&mut self, names: Arc<NameSet>) {
        self.spared = names;
    }

    /// From now on the client is told removals, also of resources from an earlier stream.
    pub const fn tell_losses(&mut self) {
        self.told = true;
    }

    /// Answers even if there is nothing to say.
    pub const fn owe(&mut self) {
        self.owed = true;
    }

    /// The snapshot that the client was sent last on this stream.
    #[must_use]
    pub fn sent(&self) -> Option<&Arc<Snapshot>> {
        self.outstanding.as_ref().map(|o| &o.target).or(self.acked())
    }

    /// An expired request does not change the subscription. But the client has dropped the names that are not in
    /// it, and should its next valid request hold them again, only this tells that they have to be sent again.
    pub(crate) fn overlook_sotw(&mut self, request: &Request<'_>, lists: &ClientLists) -> Result<(), RequestError> {
        if request.names.hash != self.raw_hash && request.names.count > 0 {
            let (_, names) = request.names.parse_set(&lists.written)?;
            self.again(self.scope.names.minus(&names));
        }
        Ok(())
    }

    pub(crate) fn rename_sotw(
        &mut self,
        request: &Request<'_>,
        named: &mut bool,
        lists: &ClientLists,
    ) -> Result<(), RequestError> {
        if request.names.hash == self.raw_hash {
            return Ok(());
        }
        let (star, names) = request.names.parse_set(&lists.written)?;
        self.raw_hash = request.names.hash;
        let wildcard = star || (names.is_empty() && !*named);
        *named |= star || !names.is_empty();
        let added = names.minus(&self.scope.names);
        self.again(added);
        self.everything_again |= wildcard && !self.scope.wildcard;
        self.scope = Scope { wildcard, names };
        Ok(())
    }

    pub(crate) fn start_delta(
        kind: ResourceType,
        request: &Request<'_>,
        lists: &ClientLists,
    ) -> Result<Self, RequestError> {
        let (star, subscribed) = request.names.parse_set(&lists.written)?;
        let (_, unsubscribed) = request.unsubscribe.parse_set(&lists.written)?;
        let claims = lists.claims.read(&request.initial_versions()?)?;
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

    pub(crate) fn rename_delta(
        &mut self,
        request: &Request<'_>,
        spontaneous: bool,
        lists: &ClientLists,
    ) -> Result<(), RequestError> {
        if request.names.count == 0 && request.unsubscribe.count == 0 {
            return Ok(());
        }
        let (star, subscribed) = request.names.parse_set(&lists.written)?;
        let (no_star, unsubscribed) = request.unsubscribe.parse_set(&lists.written)?;
        let mut names = self.scope.names.plus(&subscribed);
        if !unsubscribed.is_empty() {
            names = names.minus(&unsubscribed);
        }
        let again = if spontaneous { subscribed } else { subscribed.minus(&unsubscribed).minus(&self.scope.names) };
        self.again(again);
        self.everything_again |= star && (spontaneous || !self.scope.wildcard);
        let wildcard = (self.scope.wildcard || star) && !no_star;
        if wildcard {
            // The client cannot know whether the wildcard still covers them: it is told the resource or its removal.
            self.again(unsubscribed);
            let doubtful = std::mem::replace(&mut self.doubtful, NameSet::empty());
            self.again(doubtful);
        }
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

    pub(crate) fn settle(&mut self, error: Option<Complaint>, now: Instant) -> Received {
        match (self.outstanding.take(), error) {
            (Some(outstanding), None) => {
                let all = self.protocol == Protocol::Sotw && self.kind.is_whole();
                let next = self.refused.settle(&outstanding.news, all);
                self.base = Base::Snapshot(outstanding.target);
                self.again(NameSet::of(next));
                Received::Acked
            }
            (Some(outstanding), Some(complaint)) => {
                if self.may_leave_out() {
                    let next = self.refused.blame(&outstanding.news, &complaint.message, now);
                    self.again(NameSet::of(next));
                } else {
                    self.refused.take(&outstanding.sent, now);
                }
                Received::Nacked(complaint)
            }
            (None, Some(complaint)) => Received::Nacked(complaint),
            (None, None) => Received::Changed,
        }
    }

    /// Whether a resource may be left out of a response. A client deletes a resource that a complete response leaves out,
    /// also one that it kept from an earlier stream.
    fn may_leave_out(&self) -> bool {
        let whole = self.protocol == Protocol::Sotw && self.kind.is_whole();
        !(whole && self.returns && matches!(self.base, Base::Nothing))
    }

    /// Whether the client is left without something that it refuses, for now.
    #[must_use]
    pub fn withholds(&self) -> bool {
        !self.refused.quarantine().is_empty()
    }

    /// Resources that are held back since the client refuses them, with its complaint.
    pub fn held_back(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.refused.quarantine().held()
    }

    /// When refused content is to be sent again.
    #[must_use]
    pub fn retry_at(&self, backoff: Backoff, salt: u32) -> Option<Instant> {
        if self.outstanding.is_some() { None } else { self.refused.retry_at(backoff, salt) }
    }

    /// Sends refused content again, as it is now.
    pub fn retry(&mut self) {
        let names = self.refused.release();
        self.again(NameSet::of(names.filter(|n| self.scope.contains(n))));
    }

    /// When the response that waits for its acknowledgement was sent.
    #[must_use]
    pub fn sent_at(&self) -> Option<Instant> {
        self.outstanding.as_ref().map(|o| o.at)
    }

    /// Waits for the acknowledgement no longer. How much of the response the client applied is not known: its
    /// resources are sent again with the next one.
    pub fn give_up(&mut self) {
        let Some(outstanding) = self.outstanding.take() else { return };
        let sent = &outstanding.sent;
        let names = sent.changed.iter().map(|r| r.name()).chain(&sent.gone).cloned();
        let (asked, outside): (Vec<_>, Vec<_>) = names.partition(|name| self.scope.contains(name));
        self.again(NameSet::of(asked));
        if self.protocol == Protocol::Delta {
            self.doubtful = self.doubtful.plus(&NameSet::of(outside));
        }
    }

    /// The response that brings the client to `target`, if one is needed. The response is unacknowledged from here
    /// on; `nonce` is its nonce.
    pub fn next(
        &mut self,
        target: &Arc<Snapshot>,
        updates: &Updates,
        clock: (Instant, Backoff),
        nonce: impl FnOnce() -> String,
    ) -> Option<Sending> {
        if self.outstanding.is_some() {
            return None;
        }
        let (now, backoff) = clock;
        let due = self.refused.is_due(backoff, now);
        let changed = self.refused.quarantine_mut().let_go(target);
        self.again(NameSet::of(changed));
        let mut left = self.refused.quarantine().left_of(target, self.acked());
        let mut sending = self.compute(left.as_ref().unwrap_or(target), updates, due);
        if left.is_some() && due && sending.is_some() {
            // Other content goes out: held resources may go along.
            left = None;
            self.retry();
            sending = self.compute(target, updates, due);
        }
        let target = left.as_ref().unwrap_or(target);
        if self.protocol == Protocol::Delta && !self.scope.wildcard {
            let outside = self.again.iter().flat_map(|set| set.names()).filter(|name| !self.scope.contains(name));
            let outside = NameSet::of(outside.cloned());
            self.doubtful = self.doubtful.plus(&outside);
        }
        self.again.clear();
        self.everything_again = false;
        let Some(sending) = sending else {
            self.base = Base::Snapshot(target.clone());
            return None;
        };
        self.owed = false;
        self.nonce = nonce();
        let (sent, news) = (sending.update.difference.clone(), sending.difference.clone());
        self.outstanding = Some(Outstanding { target: target.clone(), sent, news, at: now });
        Some(sending)
    }

    /// `due`: refused resources may go along with changed ones.
    fn compute(&self, target: &Arc<Snapshot>, updates: &Updates, due: bool) -> Option<Sending> {
        let whole = self.protocol == Protocol::Sotw && self.kind.is_whole();
        let between = |old, again: &[_]| updates.between(self.kind, self.protocol, old, target, again);
        let everything = self.everything_again || matches!(self.base, Base::Nothing);
        let plain = match &self.base {
            _ if !self.refused.is_empty() || self.withholds() => None,
            Base::Nothing if !self.spared.is_empty() => None,
            // Resources that were sent and not acknowledged may have to be taken back.
            Base::Nothing if self.again.iter().any(|set| set.names().iter().any(|n| target.get(n).is_none())) => {
                Some(between(None, &self.again))
            }
            Base::Nothing => Some(between(None, &[])),
            Base::Claimed(_) if self.everything_again => None,
            Base::Claimed(claims) => Some(updates.from_claims(self.kind, claims, target, &self.spared, &self.again)),
            Base::Snapshot(_) if self.everything_again && self.protocol == Protocol::Delta => None,
            Base::Snapshot(_) if self.everything_again && !self.spared.is_empty() => None,
            Base::Snapshot(_) if self.everything_again => Some(between(None, &[])),
            Base::Snapshot(base) => Some(between(Some(base.as_ref()), &self.again)),
        };
        let update = plain.unwrap_or_else(|| {
            let difference = self.own_difference(target, due);
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
        let difference = update.difference.clone();
        let update =
            if whole { updates.whole(self.kind, self.protocol, self.acked().map(Arc::as_ref), target) } else { update };
        Some(Sending { update, news, difference })
    }

    /// The difference for this client alone: it claims versions, refused something, or wants all again.
    fn own_difference(&self, target: &Arc<Snapshot>, due: bool) -> Difference {
        let mut difference = match &self.base {
            Base::Nothing => Difference::between(None, target).sparing(&self.spared),
            Base::Claimed(claims) => claims.difference(target).sparing(&self.spared),
            Base::Snapshot(base) => Difference::between(Some(base), target),
        };
        if !self.refused.is_empty() {
            self.refused.heed(&mut difference, target, due);
        }
        if self.everything_again {
            difference.changed = Difference::between(None, target).sparing(&self.spared).changed;
        }
        add_again(&mut difference, target, &self.again);
        if self.withholds() {
            // Held resources are not removed.
            let held = self.refused.quarantine().names();
            difference.gone.retain(|name| !held.contains(name));
        }
        difference
    }
}
