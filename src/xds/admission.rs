//! Which new streams may start now. A stream whose view is built costs next to nothing and is let in at once; others are
//! counted against a rate, if there is one.

use std::{num::NonZeroU32, time::Duration};

use governor::{
    Quota, RateLimiter,
    clock::{Clock, DefaultClock},
    middleware::NoOpMiddleware,
    state::{InMemoryState, NotKeyed},
};
use tonic::Status;

type Limiter = RateLimiter<NotKeyed, InMemoryState, DefaultClock, NoOpMiddleware<<DefaultClock as Clock>::Instant>>;

/// How long a stream waits for its turn before it is refused (as in Istio).
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Decides about new streams.
pub(super) struct Admission(Option<Limiter>);

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Admission").field(&self.0.is_some()).finish()
    }
}

impl Admission {
    pub(super) fn new(per_second: Option<u32>) -> Self {
        let rate = per_second.and_then(NonZeroU32::new);
        Self(rate.map(|rate| RateLimiter::direct(Quota::per_second(rate).allow_burst(NonZeroU32::MIN))))
    }

    /// Waits for a turn, for one second at most.
    pub(super) async fn admit(&self) -> Result<(), Status> {
        let Some(limiter) = &self.0 else { return Ok(()) };
        let clock = DefaultClock::default();
        let deadline = tokio::time::Instant::now() + LONGEST_WAIT;
        while let Err(not_until) = limiter.check() {
            let wait = not_until.wait_time_from(clock.now()).max(Duration::from_millis(1));
            if tokio::time::Instant::now() + wait > deadline {
                return Err(Status::resource_exhausted("too many new streams at once; try again"));
            }
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }
}

/// Bounds what one stream may ask per second, with room for the bursts in which Envoy subscribes.
pub(super) struct RequestRate(Limiter);

impl RequestRate {
    pub(super) fn new() -> Self {
        const PER_SECOND: NonZeroU32 = NonZeroU32::new(500).unwrap();
        const BURST: NonZeroU32 = NonZeroU32::new(5000).unwrap();
        Self(RateLimiter::direct(Quota::per_second(PER_SECOND).allow_burst(BURST)))
    }

    /// How long the stream has to wait before its next request is read.
    pub(super) fn wait(&self) -> Option<Duration> {
        let not_until = self.0.check().err()?;
        Some(not_until.wait_time_from(DefaultClock::default().now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_rate_refuses_what_would_wait_too_long() {
        assert!(Admission::new(None).admit().await.is_ok());
        let admission = Admission::new(Some(1));
        assert!(admission.admit().await.is_ok());
        let both = tokio::join!(admission.admit(), admission.admit());
        assert!(both.0.is_err() || both.1.is_err());
    }

    #[test]
    fn bursts_pass_and_floods_wait() {
        let rate = RequestRate::new();
        assert_eq!((0..5000).filter_map(|_| rate.wait()).count(), 0);
        assert!((0..5000).any(|_| rate.wait().is_some()));
    }
}
