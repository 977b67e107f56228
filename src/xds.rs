//! The xDS transport protocol, state of the world and delta, for any resources: nothing here knows a mesh, a proxy or a config object.
//!
//! [`wire`] is the encoding of requests and responses. `views` holds resources, the snapshots that clients of equal content share, and
//! the differences between snapshots. `protocol` is the state machine of one stream, without I/O. `server` holds connections
//! within their limits. The resources of each client are chosen by [`discovery`](crate::discovery).
//!
//! Invariants: a resource is encoded once, never per client; a connection holds pointers, not copies; at most one response per
//! type and stream is unacknowledged and newer content replaces waiting content; unchanged bytes are never sent again. Input
//! of a client may end its own stream, and nothing else.

mod names;
mod protocol;
#[cfg(any(test, feature = "testing"))]
pub mod readers;
mod resource_type;
mod server;
mod views;
pub mod wire;

pub use names::{NameSet, Scope};
pub use protocol::{lists::ClientLists, refusals::Backoff, session::Session};
pub(crate) use protocol::{subscription::Received, unknown::UnknownTypes};
pub use resource_type::{ObjectType, PerType, ResourceType, TypeSet};
pub use server::{
    accept::listen,
    body::largest_request,
    options::XdsOptions,
    unix::{SocketFile, UnixSocket},
};
pub(crate) use server::{
    accept::{incoming, old_age, open, peer_address, peer_tls, peer_user, secure_incoming, unix_incoming},
    admission::{Admission, RequestRate, cost_of_change},
    body::{Outgoing, Requests},
    budget::Hold,
    clients::{Clients, Turn},
    name_budget::NameHold,
    service::{Calls, RawService, method},
};
pub(crate) use views::shared::{SharedTables, Table, TableEntry};
pub use views::{
    resource::{Block, Resource},
    snapshot::Snapshot,
    update::Protocol,
    updates::Updates,
};
