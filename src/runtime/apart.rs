//! Work of an actor on another thread.

use super::{Panicked, catch};

/// Runs work of an actor on another thread. A panic in it counts as a panic of the actor.
#[derive(Debug, Clone)]
pub struct Apart {
    #[cfg(any(test, feature = "testing"))]
    pub(super) faults: super::Faults,
    #[cfg(any(test, feature = "testing"))]
    pub(super) name: String,
}

impl Apart {
    /// Runs the work and catches a panic.
    ///
    /// # Errors
    /// [`Panicked`], which the actor has to pass to [`ActorHealth::fault`](super::ActorHealth::fault).
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> Result<R, Panicked> {
        catch(|| {
            #[cfg(any(test, feature = "testing"))]
            self.faults.trip(&self.name);
            work()
        })
    }
}
