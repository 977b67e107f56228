//! The xDS server: aggregated and single-type discovery, state of the world and delta, on one core.
//!
//! Invariants: a resource is generated and encoded once per view, never per client; a connection holds pointers, not
//! copies; at most one response per type and stream is unacknowledged and newer content replaces what waits; unchanged
//! bytes are never sent again; nothing is held across a socket write. What a client sends may end its own stream, and
//! nothing else.

mod accept;
pub mod actor;
mod admission;
mod body;
mod budget;
mod build;
pub mod channel;
mod claimant;
pub mod claims;
mod clients;
mod connection;
#[cfg(test)]
mod convergence;
pub mod debug;
pub mod generator;
pub mod history;
#[cfg(test)]
mod incremental;
mod load_reports;
#[cfg(test)]
mod make_before_break;
pub mod mesh_generator;
pub mod names;
mod omissions;
mod options;
#[cfg(test)]
mod proxyless;
mod refusals;
pub mod registrar;
mod repeats;
pub mod request;
pub mod resource;
pub mod resource_type;
mod server;
pub mod session;
mod shared;
pub mod snapshot;
mod state;
mod stream;
pub mod subscription;
mod turns;
mod unknown;
pub mod update;
pub mod updates;
mod view;
mod wire;
mod written;

pub use actor::{InputReader, XdsServerActor, XdsServerHandle};
pub use build::BuildError;
pub use connection::{ClientEvent, Connection, Load, TypeStatus, ViewSummary};
pub use debug::{DebugPages, DebugQuestion};
pub use generator::{Affected, AffectsName, Audience, Generator, Layout, Part, Slot};
pub use history::{PushEvent, PushRecord};
pub use load_reports::{ClusterLoad, Loads};
pub use mesh_generator::MeshGenerator;
pub use names::{NameSet, Scope};
pub use omissions::Omission;
pub use options::{Observer, XdsOptions};
pub use refusals::Backoff;
pub use registrar::{Arrival, Presence, Refusal, Registrar};
pub use resource::{Block, Resource};
pub use resource_type::{ObjectType, PerType, ResourceType, TypeSet};
pub use server::{ServeError, listen, serve};
pub use session::Session;
pub use snapshot::Snapshot;
pub use state::{Published, XdsState};
pub use update::Protocol;
pub use updates::Updates;
