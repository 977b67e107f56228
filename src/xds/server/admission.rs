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

/// The time that a stream waits for its turn before it is refused (as in Istio).
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Decides about new streams.
pub(crate) struct Admission(Option<Limiter>);

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Admission").field(&self.0.is_some()).finish()
    }
}

impl Admission {
    pub(crate) fn new(per_second: Option<f64>) -> Self {
        let pause = per_second.and_then(|rate| Duration::try_from_secs_f64(rate.recip()).ok());
        Self(pause.and_then(Quota::with_period).map(|quota| RateLimiter::direct(quota.allow_burst(NonZeroU32::MIN))))
    }

    /// Waits for a turn, for one second at most.
    pub(crate) async fn admit(&self) -> Result<(), Status> {
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

/// Bounds the requests of one stream per second, with room for the bursts in which Envoy subscribes. An acknowledgement costs
/// least; a change costs more, and by the names that have to be looked through for it.
pub(crate) struct RequestRate(Limiter);

/// The budget of a stream at once and in each second.
const BURST: NonZeroU32 = NonZeroU32::new(5000).unwrap();
const PER_SECOND: NonZeroU32 = NonZeroU32::new(500).unwrap();
/// The cost of a change, and the number of names that cost one more.
const CHANGE: u32 = 5;
const NAMES: usize = 256;

/// The cost of a request that changes a subscription; `names` are all names of its type.
pub(crate) fn cost_of_change(names: usize) -> NonZeroU32 {
    let names = u32::try_from(names / NAMES).unwrap_or(u32::MAX);
    NonZeroU32::MIN.saturating_add(names).saturating_add(CHANGE - 1).min(BURST)
}

impl RequestRate {
    pub(crate) fn new() -> Self {
        Self(RateLimiter::direct(Quota::per_second(PER_SECOND).allow_burst(BURST)))
    }

    /// Waits until the stream may go on after a request of this cost.
    pub(crate) async fn spend(&self, cost: NonZeroU32) {
        while let Some(wait) = self.wait(cost) {
            tokio::time::sleep(wait).await;
        }
    }

    fn wait(&self, cost: NonZeroU32) -> Option<Duration> {
        let not_until = self.0.check_n(cost).ok()?.err()?;
        Some(not_until.wait_time_from(DefaultClock::default().now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_rate_refuses_what_would_wait_too_long() {
        assert!(Admission::new(None).admit().await.is_ok());
        let admission = Admission::new(Some(0.5));
        assert!(admission.admit().await.is_ok());
        let both = tokio::join!(admission.admit(), admission.admit());
        assert!(both.0.is_err() && both.1.is_err());
        for none in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Admission::new(Some(none)).0.is_none(), "{none} is no rate");
        }
    }

    #[test]
    fn bursts_pass_and_floods_wait() {
        let one = NonZeroU32::MIN;
        let rate = RequestRate::new();
        assert_eq!((0..5000).filter_map(|_| rate.wait(one)).count(), 0);
        assert!((0..5000).any(|_| rate.wait(one).is_some()));
        assert_eq!([0, 1000, 100_000, usize::MAX].map(|names| cost_of_change(names).get()), [5, 8, 395, 5000]);
        let passes = |names: usize| {
            let rate = RequestRate::new();
            (0..1000).filter(|_| rate.wait(cost_of_change(names)).is_none()).count()
        };
        assert!(passes(10) >= 990 && passes(100_000) < 20);
    }
}
