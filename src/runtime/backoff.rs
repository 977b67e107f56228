//! Exponential back-off with jitter.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// Pauses that double from `first` to `longest`; jitter shortens each to a random value between half and the whole.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    attempt: u32,
}

impl Backoff {
    /// An unused back-off.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, attempt: 0 }
    }

    /// The next pause.
    pub fn next_pause(&mut self) -> Duration {
        let doubled = self.first.saturating_mul(1u32 << self.attempt.min(16));
        self.attempt = self.attempt.saturating_add(1);
        let whole = doubled.min(self.longest);
        let random = (RandomState::new().hash_one(self.attempt) % 1000) as f64 / 1000.0;
        whole.mul_f64(0.5 + random / 2.0)
    }

    /// The number of pauses since the last success.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Records a success: the next pause is the first one again.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_start_again() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(1));
        let mut backoff = Backoff::new(first, longest);
        for whole in [100, 200, 400, 800, 1000, 1000] {
            let pause = backoff.next_pause();
            assert!(pause <= Duration::from_millis(whole) && pause >= Duration::from_millis(whole / 2), "{pause:?}");
        }
        backoff.reset();
        assert!(backoff.next_pause() <= first);
    }
}
