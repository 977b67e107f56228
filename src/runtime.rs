//! The lifecycle of actors and of the process: supervision with back-off and a restart budget, queue statistics, readiness,
//! shutdown.
//!
//! An actor is a thin shell around a plain core. A panic in the core is caught ([`ActorHealth::guard`]) and stops the actor. Its
//! supervisor restarts it under the same address with a fresh core; after a back-off it requests a full resync from upstream.
//! More restarts than the budget allows end the process, as does a panic outside of a guard.

mod actor_health;
mod apart;
mod backoff;
mod descriptors;
#[cfg(any(test, feature = "testing"))]
mod faults;
mod guard;
mod handover;
mod inherited;
mod queue;
mod readiness;
mod service_manager;
mod shutdown;
mod system;
mod task;

pub use actor_health::{ActorHealth, RestartBudget, Supervision};
pub use apart::Apart;
pub use backoff::Backoff;
pub use descriptors::{descriptors_for_connections, raise_descriptor_limit};
#[cfg(any(test, feature = "testing"))]
pub use faults::Faults;
pub use guard::{Panicked, catch, install_panic_hook};
pub use handover::{Handed, HandoverError, Offer, Predecessor, TakenOver, hand_over};
pub use inherited::{Inherited, inherited_sockets};
pub use queue::{Mailbox, QueueCounters, QueueReport};
pub use readiness::{Readiness, ReadyGuard};
pub use service_manager::ServiceManager;
pub use shutdown::{Shutdown, listen_for_signals};
pub use system::block_on;
pub use task::catch_task;
