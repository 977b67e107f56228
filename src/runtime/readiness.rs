//! Readiness: the process is ready once every guard has been dropped.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

/// The guards that have not been dropped yet.
#[derive(Debug, Clone, Default)]
pub struct Readiness {
    waiting: Arc<Mutex<Vec<String>>>,
    succeeded: Arc<AtomicBool>,
}

/// Held by a room until it has synced; the drop marks the room as synced.
#[derive(Debug)]
pub struct ReadyGuard {
    name: String,
    waiting: Arc<Mutex<Vec<String>>>,
}

impl Readiness {
    /// Creates a guard: the process is not ready while it lives.
    #[must_use]
    pub fn guard(&self, name: &str) -> ReadyGuard {
        self.waiting.lock().push(name.to_string());
        ReadyGuard { name: name.to_string(), waiting: self.waiting.clone() }
    }

    /// Whether no guard is left.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// Notes that another process serves the same addresses from now on.
    pub fn succeed(&self) {
        self.succeeded.store(true, Ordering::Release);
    }

    /// Whether another process serves the same addresses.
    #[must_use]
    pub fn is_succeeded(&self) -> bool {
        self.succeeded.load(Ordering::Acquire)
    }

    /// Names of the remaining guards.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<String> {
        self.waiting.lock().clone()
    }
}

impl Drop for ReadyGuard {
    fn drop(&mut self) {
        let mut waiting = self.waiting.lock();
        if let Some(at) = waiting.iter().position(|n| *n == self.name) {
            waiting.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_the_last_guard_is_dropped() {
        let readiness = Readiness::default();
        let (store, registry) = (readiness.guard("store"), readiness.guard("registry"));
        drop(store);
        assert_eq!(readiness.waiting_for(), ["registry"]);
        assert!(!readiness.is_ready());
        drop(registry);
        assert!(readiness.is_ready());
    }
}
