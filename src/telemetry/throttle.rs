//! Throttling of repeated log events: the first ones are logged at once, later ones periodically with their count.

use std::{
    fmt,
    num::NonZeroU32,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use governor::{
    Quota, RateLimiter,
    clock::{Clock, DefaultClock},
    middleware::NoOpMiddleware,
    state::{InMemoryState, NotKeyed},
};

/// Maximum number of lines about repeated events of one stream in a row.
const OF_STREAM: NonZeroU32 = NonZeroU32::new(5).unwrap();

/// Maximum number of lines about all streams in a row. Unit tests share a process: one must not use up the lines of another.
const OF_ALL_IN_A_ROW: NonZeroU32 = if cfg!(test) { NonZeroU32::MAX } else { NonZeroU32::new(200).unwrap() };

/// Rate limit of lines about all streams together.
static OF_ALL: LazyLock<RateLimiter<NotKeyed, InMemoryState, DefaultClock>> =
    LazyLock::new(|| RateLimiter::direct(quota(OF_ALL_IN_A_ROW, Duration::from_millis(100))));

/// A rate limit for repeated log events, with a count of suppressed ones.
pub struct LogThrottle<C: Clock = DefaultClock> {
    lines: RateLimiter<NotKeyed, InMemoryState, C, NoOpMiddleware<C::Instant>>,
    untold: AtomicU64,
    of_all: bool,
}

impl LogThrottle {
    /// Allows `at_once` lines in a row, and one more after each period of `every`.
    pub fn new(at_once: NonZeroU32, every: Duration) -> Self {
        Self { lines: RateLimiter::direct(quota(at_once, every)), untold: AtomicU64::new(0), of_all: false }
    }

    /// Limits lines about one stream, within the limit of all streams: clients that reconnect get no further lines.
    pub fn of_stream() -> Self {
        Self { of_all: true, ..Self::new(OF_STREAM, Duration::from_secs(10)) }
    }
}

impl<C: Clock> LogThrottle<C> {
    /// Counts events. Returns the number of events since the last line, these included, if a line is due.
    pub fn note(&self, times: u64) -> Option<u64> {
        self.untold.fetch_add(times, Ordering::Relaxed);
        let due = self.lines.check().is_ok() && (!self.of_all || OF_ALL.check().is_ok());
        due.then(|| self.untold.swap(0, Ordering::Relaxed))
    }
}

impl<C: Clock> fmt::Debug for LogThrottle<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogThrottle").field("untold", &self.untold).finish_non_exhaustive()
    }
}

impl Default for LogThrottle {
    /// One line every ten seconds.
    fn default() -> Self {
        Self::new(NonZeroU32::MIN, Duration::from_secs(10))
    }
}

fn quota(at_once: NonZeroU32, every: Duration) -> Quota {
    // A period of zero is no valid quota.
    Quota::with_period(every).unwrap_or(Quota::per_second(NonZeroU32::MIN)).allow_burst(at_once)
}

#[cfg(test)]
mod tests {
    use governor::clock::FakeRelativeClock;

    use super::*;

    #[test]
    fn a_flood_is_a_line_now_and_then() {
        let clock = FakeRelativeClock::default();
        let quota = quota(NonZeroU32::new(2).unwrap(), Duration::from_secs(10));
        let repeats = LogThrottle {
            lines: RateLimiter::direct_with_clock(quota, clock.clone()),
            untold: AtomicU64::new(0),
            of_all: false,
        };
        let mut told = Vec::new();
        for _ in 0..2000 {
            told.extend(repeats.note(1));
            clock.advance(Duration::from_millis(10));
        }
        assert_eq!(told, [1, 1, 999, 1000][..told.len().min(4)], "{told:?}");
        assert!(told.len() >= 3 && told.len() <= 4);
    }
}
