//! Fault injection for tests of supervision: an actor panics at its next work. Built for tests only.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

/// Injected faults that have not occurred yet. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    ordered: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Faults {
    /// The faults in `PILOTHOUSE_TEST_FAULTS`: `ACTOR=TIMES`, separated by commas. Invalid parts are ignored.
    #[must_use]
    pub fn from_env() -> Self {
        let faults = Self::default();
        let orders = std::env::var("PILOTHOUSE_TEST_FAULTS").unwrap_or_default();
        for (actor, times) in orders.split(',').filter_map(|order| order.split_once('=')) {
            times.parse().into_iter().for_each(|times| faults.order(actor, times));
        }
        faults
    }

    /// Makes the next work of this actor panic, this many times. Work on another thread has the name `ACTOR, apart`.
    pub fn order(&self, actor: &str, times: u32) {
        self.lock().insert(actor.to_string(), times);
    }

    /// Whether all faults have occurred.
    #[must_use]
    pub fn are_done(&self) -> bool {
        self.lock().values().all(|times| *times == 0)
    }

    /// Panics if a fault of this name is due.
    ///
    /// # Panics
    /// If a fault is due.
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

    fn lock(&self) -> parking_lot::MutexGuard<'_, BTreeMap<String, u32>> {
        self.ordered.lock()
    }
}
