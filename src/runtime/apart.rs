//! Work that an actor has done on another thread.

use super::{Panicked, catch};

/// Runs work of an actor away from its thread; a panic in it is the actor's fault.
#[derive(Debug, Clone)]
pub struct Apart {
    #[cfg(any(test, feature = "testing"))]
    pub(super) faults: super::Faults,
    #[cfg(any(test, feature = "testing"))]
    pub(super) name: String,
}

impl Apart {
    /// Runs it.
    ///
    /// # Errors
    /// [`Panicked`], to be handed to [`Vitals::fault`](super::Vitals::fault) by the actor.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> Result<R, Panicked> {
        catch(|| {
            #[cfg(any(test, feature = "testing"))]
            self.faults.trip(&self.name);
            work()
        })
    }
}
