//! The times of a push's acknowledgements, as a histogram of fixed size: a percentile is right to a fifth of itself.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use serde::Serialize;

/// Steps of a doubling.
const STEPS: u32 = 4;
/// Buckets; the last one ends beyond an hour.
const BUCKETS: usize = 104;
/// Upper bound of the first bucket, in microseconds.
const FIRST: f64 = 64.0;

/// Percentiles in milliseconds: no more than the named part of the acknowledgements came later.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the percentiles of that name")]
pub struct Percentiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
}

/// Numbers of acknowledgements by time.
#[derive(Debug)]
pub(super) struct AckTimes([AtomicU32; BUCKETS]);

impl Default for AckTimes {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU32::new(0)))
    }
}

impl AckTimes {
    pub(super) fn note(&self, micros: u64) {
        let steps = ((micros as f64 / FIRST).max(1.0).log2() * f64::from(STEPS)).ceil();
        let at = (steps as usize).min(BUCKETS - 1);
        if let Some(bucket) = self.0.get(at) {
            bucket.fetch_add(1, Relaxed);
        }
    }

    /// The percentiles so far; `None` without an acknowledgement. Each is the upper bound of its bucket.
    pub(super) fn percentiles(&self) -> Option<Percentiles> {
        let counts: Vec<u64> = self.0.iter().map(|bucket| u64::from(bucket.load(Relaxed))).collect();
        let all: u64 = counts.iter().sum();
        let of = |percent: u64| {
            let wanted = (all * percent).div_ceil(100);
            let mut seen = 0;
            let at = counts.iter().position(|count| {
                seen += count;
                seen >= wanted
            });
            FIRST * (at.unwrap_or_default() as f64 / f64::from(STEPS)).exp2() / 1e3
        };
        (all > 0).then(|| Percentiles { p50: of(50), p90: of(90), p99: of(99) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_a_fifth() {
        let times = AckTimes::default();
        assert_eq!(times.percentiles(), None);
        (1..=100).for_each(|millis| times.note(millis * 1000));
        let found = times.percentiles().unwrap();
        for (found, right) in [(found.p50, 50.0), (found.p90, 90.0), (found.p99, 99.0)] {
            assert!(found >= right && found <= right * 1.2, "{found} for {right}");
        }
        let extremes = AckTimes::default();
        extremes.note(0);
        extremes.note(u64::MAX);
        assert!(extremes.percentiles().is_some_and(|p| p.p50 < 0.1 && p.p99 > 3_600_000.0));
    }
}
