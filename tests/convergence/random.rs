//! A small generator of random numbers: a seed gives the same numbers on every machine.

use std::time::Duration;

/// Splitmix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end.max(1) as u64) as usize
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Some of these, in their order.
    pub fn some<'a, T>(&mut self, all: &'a [T], percent: usize) -> Vec<&'a T> {
        all.iter().filter(|_| self.chance(percent)).collect()
    }

    /// A pause of 1 to `longest` milliseconds, short ones more often.
    pub fn pause(&mut self, longest: u64) -> Duration {
        let (low, high) = (0.0_f64, (longest.max(2) as f64).ln());
        let part = self.below(1_000_000) as f64 / 1e6;
        Duration::from_micros(((low + (high - low) * part).exp() * 1000.0) as u64)
    }
}
