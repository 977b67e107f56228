//! Content that a client refused, and when it is sent again. Which resources it is held to refuse says [`Quarantine`].
//!
//! The reason of a refusal may lie with the client (a certificate file that is not there yet), so refused content is sent
//! again: after a pause that grows, and sooner beside other content that changes. No clock: the time is an argument.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::quarantine::{Quarantine, Verdict};
use crate::xds::{
    names::NameSet,
    views::{
        snapshot::{Difference, Snapshot},
        updates::add_again,
    },
};

/// Pauses before refused content is sent again: the first one, and the longest. Each is twice the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), longest: Duration::from_secs(30) }
    }
}

impl Backoff {
    /// The pause after so many refusals in a row. `salt` takes up to a quarter away, so that clients do not come in step.
    fn pause(self, refusals: u32, salt: u32) -> Duration {
        let doubled = self.first.saturating_mul(1 << refusals.saturating_sub(1).min(16)).min(self.longest);
        doubled - doubled / 4 * (salt.wrapping_mul(0x9e37_79b9) >> 24) / 256
    }
}

/// Content that a client refused.
#[derive(Debug, Default)]
pub(crate) struct RefusedContent {
    /// Hash of the content by name (0: a removal). It is not sent again before the pause ends, unless it changes.
    content: BTreeMap<Arc<str>, u128>,
    /// Resources that are held back so that the client gets the others.
    quarantine: Quarantine,
    /// Refusals in a row.
    count: u32,
    /// The last refusal.
    at: Option<Instant>,
}

impl RefusedContent {
    /// Whether no response waits for a pause as a whole.
    pub(crate) fn is_empty(&self) -> bool {
        self.content.is_empty()
    }

    /// The resources that are held back.
    pub(super) const fn quarantine(&self) -> &Quarantine {
        &self.quarantine
    }

    /// The same, to be changed.
    pub(super) const fn quarantine_mut(&mut self) -> &mut Quarantine {
        &mut self.quarantine
    }

    /// A response with this in it was refused with this complaint. The names that are sent again at once: how much of the
    /// response the client applied is not known.
    pub(crate) fn blame(&mut self, sent: &Difference, complaint: &str, now: Instant) -> Vec<Arc<str>> {
        let fresh = self.quarantine.is_at_rest();
        match self.quarantine.blame(&sent.changed, complaint) {
            Verdict::Rest(names) => {
                self.count = self.count.saturating_add(u32::from(fresh));
                self.at = Some(now);
                // Removals among them are told again even where nothing else is left to send.
                names.into_iter().chain(sent.gone.iter().cloned()).collect()
            }
            Verdict::Unclear(waiting) => {
                self.content.extend(waiting);
                self.take(sent, now);
                Vec::new()
            }
        }
    }

    /// A response with this in it was refused.
    pub(crate) fn take(&mut self, sent: &Difference, now: Instant) {
        self.content.extend(sent.changed.iter().map(|r| (r.name().clone(), r.hash())));
        self.content.extend(sent.gone.iter().map(|n| (n.clone(), 0)));
        self.count = self.count.saturating_add(1);
        self.at = Some(now);
    }

    /// A response with this in it was accepted; `whole`: one with everything. The names that are sent next.
    pub(crate) fn settle(&mut self, sent: &Difference, whole: bool) -> Vec<Arc<str>> {
        let next = self.quarantine.accepted(&sent.changed);
        if whole {
            self.content.clear();
        } else if !self.is_empty() {
            for name in sent.changed.iter().map(|r| r.name()).chain(&sent.gone) {
                self.content.remove(name);
            }
        }
        if self.is_empty() && self.quarantine.is_empty() && next.is_empty() {
            *self = Self::default();
        }
        next
    }

    /// When the pause ends.
    pub(crate) fn retry_at(&self, backoff: Backoff, salt: u32) -> Option<Instant> {
        self.at
            .filter(|_| !self.is_empty() || !self.quarantine.is_empty())
            .map(|at| at + backoff.pause(self.count, salt))
    }

    /// Whether refused content may go along with other content.
    pub(crate) fn is_due(&self, backoff: Backoff, now: Instant) -> bool {
        self.at.is_some_and(|at| now >= at + backoff.first)
    }

    /// The pause has ended: the names, of which nothing counts as refused any more.
    pub(crate) fn release(&mut self) -> impl Iterator<Item = Arc<str>> + use<> {
        std::mem::take(&mut self.content).into_keys().chain(self.quarantine.release())
    }

    /// Content that the client refused is not sent again as it was before its pause ends. When some of it changed, or when
    /// other content goes out and the pause is due, all that was refused goes out once more, since a client
    /// may have applied a part of a refused response.
    pub(crate) fn heed(&self, difference: &mut Difference, target: &Snapshot, due: bool) {
        let refused = &self.content;
        let hash_now = |name: &str| target.get(name).map_or(0, |r| r.hash());
        difference.changed.retain(|r| refused.get(r.name()) != Some(&r.hash()));
        let wanted = |name: &Arc<str>| target.scope().contains(name);
        let others = !difference.changed.is_empty() || difference.gone.iter().any(|n| refused.get(n) != Some(&0));
        if refused.iter().any(|(name, hash)| !wanted(name) || hash_now(name) != *hash) || (others && due) {
            let names = NameSet::of(refused.keys().filter(|n| wanted(n)).cloned());
            add_again(difference, target, &[names]);
        } else if others {
            let removals = refused.iter().filter(|(name, hash)| **hash == 0 && wanted(name));
            difference.gone.extend(removals.map(|(name, _)| name.clone()));
        } else {
            difference.gone.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_clients_are_spread() {
        let backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };
        let pauses: Vec<_> = (1..8).map(|count| backoff.pause(count, 0).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(backoff.pause(u32::MAX, 0), backoff.longest);
        let spread: std::collections::BTreeSet<_> = (0..100).map(|salt| backoff.pause(9, salt)).collect();
        assert!(spread.len() > 50 && spread.iter().all(|p| *p <= backoff.longest && *p > backoff.longest * 7 / 10));
    }
}
