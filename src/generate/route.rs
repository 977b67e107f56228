//! Routes (RDS): VirtualServices and services as Envoy's route configurations, for sidecars and gateways.
//!
//! The grain is the virtual host. Everything that one is built from is gathered first; the builder reads nothing else, so
//! that a key over what was gathered names the encoded virtual host, and a changed weight re-encodes one of them.
//! A route may lead to a cluster that does not exist: Envoy answers 503 for it, and the rest of the table works.

mod action;
mod cluster_name;
mod defaults;
mod domains;
mod filters;
pub mod hash;
mod headers;
mod http;
mod key;
mod matching;
mod retry;
mod session;

#[cfg(test)]
mod conformance;

pub use cluster_name::of as destination_cluster;
pub use defaults::{inbound_route, outbound_route, trace_operation};
pub use domains::virtual_host_domains;
pub use filters::InferencePool;
pub use http::{Lookup, RouteOptions, VirtualServiceRoutes};
pub use session::{STATEFUL_SESSION, Session};
