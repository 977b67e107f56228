//! Listeners (LDS): those of sidecars, outbound and inbound, and those of gateways.
//!
//! `builder` holds what the builders of one proxy share; `hcm`, `http_filters`, `tcp`, `access_log`, `tracing` and
//! `tls_context` build the parts that both kinds of proxy use.

pub mod access_log;
pub mod builder;
pub mod dynamic_dns;
pub mod gateway;
pub mod hcm;
pub mod http_filters;
pub mod listener_filters;
pub mod stats;
pub mod tcp;
pub mod tls_context;
pub mod tracing;

pub use builder::Builder;
pub use gateway::gateway;
