//! The state of one type on one stream: its subscription, and the part that outlives it. No I/O, no clock.

use std::time::Instant;

use super::{
    lists::ClientLists,
    subscription::{Received, Subscription},
};
use crate::xds::{
    names::Scope,
    resource_type::ResourceType,
    views::update::Protocol,
    wire::request::{Request, RequestError},
};

/// The state of one type on one stream: the subscription, and the part that outlives it.
#[derive(Debug, Default)]
pub struct Channel {
    subscription: Option<Subscription>,
    /// Nonce of the last response before the subscription ended.
    nonce: String,
    /// The client has named resources: from then on an empty list asks for nothing, also where it asked for everything.
    named: bool,
}

impl Channel {
    /// The subscription; `None` when the type is not subscribed to.
    #[must_use]
    pub const fn subscription(&self) -> Option<&Subscription> {
        self.subscription.as_ref()
    }

    /// The same, to be changed.
    #[must_use]
    pub const fn subscription_mut(&mut self) -> Option<&mut Subscription> {
        self.subscription.as_mut()
    }

    /// Takes a state-of-the-world request, in the order of Istio's `ShouldRespond`.
    ///
    /// An empty list asks for everything where the type knows that and the client has named nothing on this stream. Any other
    /// empty list ends the subscription, whatever its nonce: a client that wants nothing of a type any more need not answer
    /// the response that crosses this request.
    ///
    /// # Errors
    /// [`RequestError`] when names are malformed or too many.
    pub fn receive_sotw(
        &mut self,
        kind: ResourceType,
        request: &Request<'_>,
        lists: &ClientLists,
        now: Instant,
    ) -> Result<Received, RequestError> {
        let ends = request.names.count == 0 && (!kind.is_wildcard() || self.named);
        match &mut self.subscription {
            Some(current)
                if request.error.is_some() && (!current.is_answered_by(request) || request.nonce.is_empty()) =>
            {
                return Ok(Received::Expired);
            }
            current if ends && (request.error.is_none() || current.is_none()) => {
                if let Some(before) = current.take() {
                    self.nonce = before.into_nonce();
                }
                return Ok(Received::Ended);
            }
            Some(current) if !request.nonce.is_empty() => {
                // Nothing can cross a request while nothing was sent.
                if !current.nonce().is_empty() && !current.is_answered_by(request) {
                    current.overlook_sotw(request, lists)?;
                    return Ok(Received::Expired);
                }
                let received = current.settle(request.error.clone(), now);
                if !ends {
                    current.rename_sotw(request, &mut self.named, lists)?;
                }
                return Ok(received);
            }
            _ => {}
        }
        let (star, names) = request.names.parse_set(&lists.written)?;
        let wildcard = star || (names.is_empty() && kind.is_wildcard() && !self.named);
        self.named |= star || !names.is_empty();
        let mut fresh = Subscription::new(kind, Protocol::Sotw, Scope { wildcard, names });
        fresh.raw_hash = request.names.hash;
        fresh.owed = kind.is_whole();
        // A response that crossed the request may still be answered under its nonce.
        let last = std::mem::take(&mut self.nonce);
        fresh.returns = self.subscription.is_none() && last.is_empty() && request.nonce.is_empty() && request.versioned;
        fresh.nonce = self.subscription.take().map_or(last, Subscription::into_nonce);
        self.subscription = Some(fresh);
        Ok(Received::Started)
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
        &mut self,
        kind: ResourceType,
        request: &Request<'_>,
        lists: &ClientLists,
        now: Instant,
    ) -> Result<Received, RequestError> {
        let Some(current) = &mut self.subscription else {
            self.subscription = Some(Subscription::start_delta(kind, request, lists)?);
            return Ok(Received::Started);
        };
        let received = if request.nonce.is_empty() {
            Received::Changed
        } else if current.is_answered_by(request) {
            current.settle(request.error.clone(), now)
        } else {
            // Names are told once only, so they count even though the acknowledgement does not.
            Received::Expired
        };
        current.rename_delta(request, received == Received::Changed, lists)?;
        Ok(received)
    }
}
