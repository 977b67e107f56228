//! Handlers of config events: each turns changes of objects into operations on the registry and push requests.
//!
//! There are five handler types, registered as in Istio, and one more for clients of config objects. Each is a pure decision in
//! a file of its own with an actor around it. The store calls the handlers one after the other, in the order of registration.

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

/// The outcome of a batch of events.
#[derive(Debug, Default)]
pub struct Decision {
    /// Whether the registry has to process the events.
    pub registry: bool,
    /// The push request, if the events need a push.
    pub push: Option<PushRequest>,
}

/// The decision of a handler: a function of the events, without state.
pub trait Decide: Send + Unpin + 'static {
    /// The handler's name, as in Istio.
    const NAME: &'static str;

    /// Whether events of this kind are for this handler.
    fn wants(kind: Kind) -> bool;

    /// Decides about a batch of events of the wanted kinds.
    fn decide(&self, events: &[ConfigEvent]) -> Decision;
}
