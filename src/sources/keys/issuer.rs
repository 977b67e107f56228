//! The rules of the key set of the issuer that clients' tokens are of: those of all key sets, under a name of its own.

use std::time::{Duration, Instant};

use futures::future::BoxFuture;

use super::{HttpFetch, KeyRules, rules::HeldKeys};
use crate::{
    model::key_set::KeyLocation,
    sources::polled::{Poll, PollRules, Taken},
};

/// The rules of the key set of an issuer of clients' tokens.
#[derive(Debug)]
pub struct IssuerKeyRules(
    /// The rules of all key sets.
    pub KeyRules,
);

impl PollRules for IssuerKeyRules {
    type Key = KeyLocation;
    type Terms = Duration;
    type Answer = Result<String, String>;
    type Held = HeldKeys;
    type Value = std::sync::Arc<str>;

    const SOURCE: &'static str = "jwks:clients";
    const KEYS: &'static str = KeyRules::KEYS;
    const POLLED: &'static str = KeyRules::POLLED;
    const MOST_KEYS: usize = 1;
    const MOST_BYTES: usize = KeyRules::MOST_BYTES;

    fn take(&self, held: &mut HeldKeys, answer: Self::Answer, room: usize, now: Instant) -> Taken {
        self.0.take(held, answer, room, now)
    }

    fn longest_retry(&self) -> Duration {
        self.0.longest_retry()
    }

    fn value(held: &HeldKeys) -> Option<Self::Value> {
        KeyRules::value(held)
    }

    fn bytes(held: &HeldKeys) -> usize {
        KeyRules::bytes(held)
    }

    fn expire(held: &mut HeldKeys, now: Instant) -> bool {
        KeyRules::expire(held, now)
    }

    fn text(location: &KeyLocation) -> &str {
        KeyRules::text(location)
    }

    fn log(location: &KeyLocation, error: &str, kept: bool) {
        let location = location.as_str();
        tracing::warn!(location, error, kept, "the keys of the issuer of JWT_RULE cannot be fetched");
    }
}

impl Poll<IssuerKeyRules> for HttpFetch {
    fn poll(&self, at: &KeyLocation, patience: &Duration) -> BoxFuture<'static, Result<String, String>> {
        Poll::<KeyRules>::poll(self, at, patience)
    }
}
