//! Listeners (LDS): those of sidecars, outbound and inbound, and those of gateways.
//!
//! `builder` holds what the builders of one proxy share; `hcm`, `http_filters`, `listener_filters`, `filter_chain`, `tcp`,
//! `access_log`, `tracing`, `bind` and `tls_context` build the parts that both kinds of proxy use. A stock Envoy is sent
//! nothing that only Istio's build of Envoy knows; see `tls_context` for what it gets in place of the agent's certificates.

pub mod access_log;
pub mod bind;
pub mod builder;
pub mod dynamic_dns;
pub mod filter_chain;
pub mod gateway;
pub mod hcm;
pub mod http_filters;
pub mod listener_filters;
pub mod outbound;
pub mod stats;
pub mod tcp;
pub mod tls_context;
pub mod tracing;

pub use builder::Builder;
pub use gateway::gateway;
