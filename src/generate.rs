//! Pure xDS generation: a [`PushContext`](crate::push::PushContext) and a [`ProxyView`](crate::push::ProxyView) in, Envoy
//! resources out. No I/O, no clock, no randomness, no state; the same inputs give the same bytes.

pub mod addresses;
pub mod api;
pub mod authorization;
pub mod check;
pub mod cluster;
pub mod compliance;
pub mod dns_cache;
pub mod endpoint;
pub mod envoy_filter;
pub mod extension;
pub mod grpc;
pub mod listener;
pub mod name_table;
pub mod names;
pub mod proxy_config;
pub mod request_authentication;
pub mod route;
pub mod sds;
pub mod secret;
pub mod stat_name;
pub mod traffic_policy;
pub mod trust_bundle;
