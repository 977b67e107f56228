//! From changes of objects to what they mean: operations on the registry and requests to push.
//!
//! Five handler types, as Istio registers them, and one that speaks for clients of config objects. Each is a pure decision
//! in a file of its own and an actor around it. Order among them is the store's: it tells one handler after the other, in
//! the order of registration.

pub mod actor;
mod config;
mod object;
mod service;
mod service_entry;
mod workload_entry;
mod workload_instance;

pub use actor::{HandlerActor, HandlerPort};
pub use config::{ConfigHandler, needs_push};
pub use object::ObjectHandler;
pub use service::ServiceHandler;
pub use service_entry::ServiceEntryHandler;
pub use workload_entry::WorkloadEntryHandler;
pub use workload_instance::WorkloadInstanceHandler;

use crate::model::{ConfigEvent, Kind, PushRequest};

/// What events mean.
#[derive(Debug, Default)]
pub struct Decision {
    /// The registry is to take the events in.
    pub registry: bool,
    /// Something is to be pushed.
    pub push: Option<PushRequest>,
}

/// A handler's decision: from events to what they mean, without state.
pub trait Decide: Send + Unpin + 'static {
    /// Name of the handler, as Istio calls it.
    const NAME: &'static str;

    /// Whether events of this kind are for this handler.
    fn wants(kind: Kind) -> bool;

    /// What the events mean.
    fn decide(&self, events: &[ConfigEvent]) -> Decision;
}
