//! Random policies: a generator whose seed is known, and fields of sources, operations and conditions.

use serde_json::{Value, json};

/// A random number generator whose seed is known.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    pub fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn some(&mut self, all: &[&str]) -> Vec<String> {
        (0..=self.below(2)).map(|_| self.of(all).to_string()).collect()
    }
}

/// Puts a field with values, its negation, or both, into a source, an operation or a condition.
pub fn field(random: &mut Random, into: &mut Value, name: &str, values: &[&str]) {
    let negated = format!("not{}{}", name[..1].to_uppercase(), &name[1..]);
    let form = random.below(3);
    if form != 1 {
        into[name] = json!(random.some(values));
    }
    if form != 0 {
        into[&negated] = json!(random.some(values));
    }
}

/// A setting of the environment.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
