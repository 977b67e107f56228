//! Routes (RDS): VirtualServices and services as Envoy's route configurations, for sidecars and gateways.
//!
//! The grain is the virtual host. All inputs of one are gathered first; the builder reads nothing else, so
//! that a key over the inputs names the encoded virtual host, and a changed weight re-encodes one of them.
//! A route may lead to a cluster that does not exist: Envoy answers 503 for it, and the rest of the table works.

mod action;
mod alone;
mod catch_all;
mod cluster_name;
mod defaults;
mod domains;
mod encoded;
mod filters;
mod gateway;
pub mod hash;
mod headers;
mod http;
mod inbound;
mod key;
mod matching;
mod patched;
mod retry;
mod session;
mod sidecar;
mod table;
mod virtual_host;

#[cfg(test)]
mod tests;

pub use alone::refusals;
pub use cluster_name::of as destination_cluster;
pub use defaults::{outbound_route, trace_operation};
pub use domains::alternatives as alternative_domains;
pub use encoded::{encoded, sidecar_outbound_encoded};
pub use filters::{FAULT, InferencePool};
pub use gateway::gateway;
pub use http::{Lookup, RouteOptions, VirtualServiceRoutes};
pub use inbound::inbound;
pub use session::{STATEFUL_SESSION, Session};
pub use sidecar::{outbound as sidecar_outbound, proxyless_virtual_hosts};
pub use table::{VirtualHostMemo, empty};
pub use virtual_host::VirtualHostInputs;
