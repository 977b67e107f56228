//! Faults on order, for tests of supervision: an actor panics when it takes up its next work. Built for tests only.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Orders that are not carried out yet. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    ordered: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Faults {
    /// The orders in `PILOTHOUSE_TEST_FAULTS`: `ACTOR=TIMES`, with commas between them. What cannot be read orders nothing.
    #[must_use]
    pub fn from_env() -> Self {
        let faults = Self::default();
        let orders = std::env::var("PILOTHOUSE_TEST_FAULTS").unwrap_or_default();
        for (actor, times) in orders.split(',').filter_map(|order| order.split_once('=')) {
            times.parse().into_iter().for_each(|times| faults.order(actor, times));
        }
        faults
    }

    /// Work of this actor panics so many times. Work on another thread goes by `ACTOR, apart`.
    pub fn order(&self, actor: &str, times: u32) {
        self.lock().insert(actor.to_string(), times);
    }

    /// Whether all orders were carried out.
    #[must_use]
    pub fn are_done(&self) -> bool {
        self.lock().values().all(|times| *times == 0)
    }

    /// Panics when a fault of this name is due.
    ///
    /// # Panics
    /// As ordered.
    pub fn trip(&self, actor: &str) {
        let due = match self.lock().get_mut(actor) {
            Some(times) if *times > 0 => {
                *times -= 1;
                true
            }
            _ => false,
        };
        assert!(!due, "a fault of {actor}, as ordered");
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, u32>> {
        self.ordered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
