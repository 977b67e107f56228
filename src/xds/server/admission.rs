//! Which new streams may start now. A stream whose view is built costs next to nothing and is let in at once; others are
//! counted against a rate, if there is one.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

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
///
/// Changes beyond a modest rate are paid for from a budget that all streams of an address share, so that many streams
/// get no more work done than one. Clients behind one address that change little share nothing.
pub(crate) struct RequestRate {
    /// All requests of the stream.
    all: Limiter,
    /// Changes that the stream may make by itself.
    own: Limiter,
    peer: Arc<PeerRate>,
}

/// The allowance that the streams of an address share, for changes beyond those of their own.
pub(super) struct PeerRate(Limiter);

impl std::fmt::Debug for PeerRate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PeerRate")
    }
}

impl PeerRate {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(limiter(PER_SECOND, BURST)))
    }
}

/// The budget of a stream at once and in each second; the same for the budget that the streams of an address share.
const BURST: NonZeroU32 = NonZeroU32::new(5000).unwrap();
const PER_SECOND: NonZeroU32 = NonZeroU32::new(500).unwrap();
/// The changes that a stream may make by itself, at once and in each second.
const OWN_BURST: NonZeroU32 = NonZeroU32::new(250).unwrap();
const OWN_PER_SECOND: NonZeroU32 = NonZeroU32::new(50).unwrap();
/// The cost of a change, and the number of names that cost one more.
const CHANGE: u32 = 5;
const NAMES: usize = 256;

/// The cost of a request that changes a subscription; `names` are all names of its type.
pub(crate) fn cost_of_change(names: usize) -> NonZeroU32 {
    let names = u32::try_from(names / NAMES).unwrap_or(u32::MAX);
    NonZeroU32::MIN.saturating_add(names).saturating_add(CHANGE - 1).min(BURST)
}

impl RequestRate {
    pub(super) fn new(peer: Arc<PeerRate>) -> Self {
        Self { all: limiter(PER_SECOND, BURST), own: limiter(OWN_PER_SECOND, OWN_BURST), peer }
    }

    /// Waits until the stream may go on after a request of this cost.
    pub(crate) async fn spend(&self, cost: NonZeroU32) {
        while let Some(wait) = wait(&self.all, cost) {
            tokio::time::sleep(wait).await;
        }
        while let Some(wait) = self.wait_for_peer(cost) {
            tokio::time::sleep(wait).await;
        }
    }

    fn wait_for_peer(&self, cost: NonZeroU32) -> Option<Duration> {
        // An acknowledgement answers a response of the server: it costs the client nothing.
        let is_own = cost == NonZeroU32::MIN || matches!(self.own.check_n(cost), Ok(Ok(())));
        if is_own { None } else { wait(&self.peer.0, cost) }
    }
}

fn limiter(per_second: NonZeroU32, burst: NonZeroU32) -> Limiter {
    RateLimiter::direct(Quota::per_second(per_second).allow_burst(burst))
}

fn wait(limiter: &Limiter, cost: NonZeroU32) -> Option<Duration> {
    let not_until = limiter.check_n(cost).ok()?.err()?;
    Some(not_until.wait_time_from(DefaultClock::default().now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_rate_refuses_requests_that_would_wait_too_long() {
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
        let rate = || RequestRate::new(PeerRate::new());
        let of_acknowledgements = rate();
        assert_eq!((0..5000).filter_map(|_| wait(&of_acknowledgements.all, one)).count(), 0);
        assert!((0..5000).any(|_| wait(&of_acknowledgements.all, one).is_some()));
        assert_eq!([0, 1000, 100_000, usize::MAX].map(|names| cost_of_change(names).get()), [5, 8, 395, 5000]);
        let passes = |names: usize| {
            let rate = rate();
            (0..1000).filter(|_| wait(&rate.all, cost_of_change(names)).is_none()).count()
        };
        assert!(passes(10) >= 990 && passes(100_000) < 20);
    }

    #[test]
    fn streams_of_an_address_share_the_budget_beyond_a_modest_rate() {
        let (peer, change) = (PeerRate::new(), cost_of_change(1000));
        let streams: Vec<_> = (0..100).map(|_| RequestRate::new(peer.clone())).collect();
        let modest = |rate: &RequestRate| (0..30).all(|_| rate.wait_for_peer(change).is_none());
        assert!(streams.iter().all(modest), "none has used up its own budget");
        let passed = |rate: &RequestRate| (0..1000).filter(|_| rate.wait_for_peer(change).is_none()).count();
        let all: usize = streams.iter().map(passed).sum();
        assert!((600..20_000).contains(&all), "{all} changes at once by all streams together");
        assert!(streams.iter().all(|rate| rate.wait_for_peer(NonZeroU32::MIN).is_none()), "acknowledgements are free");
        let elsewhere = RequestRate::new(PeerRate::new());
        assert!(passed(&elsewhere) > 600, "another address has its own");
    }
}
