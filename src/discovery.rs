//! Where the mesh meets the protocol: [`XdsServerActor`] owns the debounce, the published context and the table of connections, and
//! the [`MeshGenerator`] is the only composer of resources: proxies, `render` and the recorded families get the same bytes.
//!
//! Invariants: a resource is generated and encoded once per view, never per client; nothing is held across a socket write; an
//! older context is never published after a newer one.

mod ack_times;
mod actor;
mod build;
mod build_queue;
mod causes;
mod certificates;
mod claimant;
mod composer;
mod connection;
mod course;
pub mod debug;
mod generator;
mod history;
#[cfg(test)]
mod incremental;
mod load_reports;
mod loads;
mod mesh_generator;
mod omission;
mod omissions;
mod ports;
mod published;
mod push_event;
mod push_traces;
#[cfg(any(test, feature = "testing"))]
pub mod readers;
mod rebuild;
pub mod registrar;
mod services;
mod shown;
mod state;
mod stream;
mod unmet;
mod view;

pub use ack_times::Percentiles;
pub use actor::{InputReader, XdsServerActor, XdsServerHandle};
pub use build::BuildError;
pub use composer::{Composer, Resources};
pub use connection::{Connection, Load, TypeStatus, ViewSummary};
pub use debug::{DebugPages, DebugQuestion};
pub use generator::{Affected, AffectsName, Audience, Claim, Generator, Layout, Part, Slot};
pub use history::PushRecord;
pub use loads::{ClusterLoad, Loads};
pub use mesh_generator::MeshGenerator;
pub use omission::Omission;
pub use ports::Ports;
pub use published::Published;
pub use push_event::{PushEvent, StageTimes};
pub use push_traces::PushTraces;
pub use registrar::{Arrival, Presence, Registrar, RegistrationRefusal};
pub use services::{ListeningSockets, ServeError, serve};
pub use state::XdsState;
pub use unmet::unmet_policies;
