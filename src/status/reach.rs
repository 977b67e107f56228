//! The number of proxies that hold an object, and the condition that says so.

use serde_json::{Value, json};

/// Type of the condition on the distribution of an object.
pub const CONDITION: &str = "Reconciled";

/// The number of proxies that hold an object, and of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reach {
    /// The number of proxies that hold it.
    pub acked: usize,
    /// The number of connected proxies.
    pub total: usize,
    /// The number of processes that do not know it yet: a proxy that connects to one of these would lack it.
    pub lagging: usize,
}

impl Reach {
    /// The reach in two groups of proxies together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { acked: self.acked + other.acked, total: self.total + other.total, lagging: self.lagging + other.lagging }
    }

    /// Whether all proxies of all processes hold it.
    #[must_use]
    pub const fn is_complete(self) -> bool {
        self.acked >= self.total && self.lagging == 0
    }

    /// The condition for an object of this generation (0 for none), without a transition time.
    #[must_use]
    pub fn condition(self, generation: i64) -> Value {
        let mut condition = json!({
            "type": CONDITION,
            "status": if self.is_complete() { "True" } else { "False" },
            "message": format!("{}/{} proxies up to date.", self.acked, self.total),
        });
        if generation > 0 {
            condition["observedGeneration"] = generation.into();
        }
        condition
    }
}
