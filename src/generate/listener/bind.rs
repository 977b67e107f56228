//! Addresses that listeners bind to, and which ports a proxy may bind.

use super::builder::Builder;
use crate::{
    generate::names,
    model::{Protocol, node::InterceptionMode},
    proto::envoy::config::{
        core::v3::Address,
        listener::v3::{
            AdditionalAddress, Listener,
            listener::{ConnectionBalanceConfig, connection_balance_config},
        },
    },
};

/// The prefix of an address that is a socket of the file system.
pub const UNIX: &str = "unix://";

/// A listener address: a pipe for port 0.
#[must_use]
pub fn address(bind: &str, port: u32) -> Address {
    names::address(if port == 0 { bind.strip_prefix(UNIX).unwrap_or(bind) } else { bind }, port)
}

/// The same for further addresses of one listener.
#[must_use]
pub fn additional<T: AsRef<str>>(binds: &[T], port: u32) -> Vec<AdditionalAddress> {
    let binds = binds.iter().map(AsRef::as_ref).filter(|b| !b.is_empty());
    binds.map(|b| AdditionalAddress { address: Some(address(b, port)), ..Default::default() }).collect()
}

/// `bind_port`, the name of a TCP listener.
#[must_use]
pub fn listener_name(bind: &str, port: u32) -> String {
    format!("{bind}_{port}")
}

/// Connections that a listener takes from its socket at once.
#[must_use]
pub fn accepts_per_event(builder: &Builder) -> Option<u32> {
    Some(builder.features().max_connections_per_socket_event_loop).filter(|n| *n > 0)
}

/// Spreads connections evenly over workers, where the proxy's metadata asks for it.
pub fn balance(builder: &Builder, listener: &mut Listener, key: &str) {
    if matches!(builder.view.metadata.other(key), "true" | "1" | "TRUE" | "True" | "t" | "T") {
        listener.connection_balance_config = Some(ConnectionBalanceConfig {
            balance_type: Some(connection_balance_config::BalanceType::ExactBalance(
                connection_balance_config::ExactBalance {},
            )),
        });
    }
}

/// The address that a listener wants to bind.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// A real socket, not only a match on the original destination.
    pub bind_to_port: bool,
    /// Address; empty when it follows from the protocol.
    pub bind: &'a str,
    /// The port number of the address.
    pub port: u32,
    /// The protocol of the port, which decides the address when `bind` is empty.
    pub protocol: Protocol,
    /// Ports of the virtual listeners are taken too (not so for Sidecar ingress).
    pub virtual_ports: bool,
}

/// Whether the proxy can bind there: a port that exists, not a port below 1024 without privileges, not a port that its own listeners have
/// (Istio's `CanBindToPort`).
#[must_use]
pub fn can_bind(builder: &Builder, wanted: Wanted) -> bool {
    let metadata = &builder.view.metadata;
    let Wanted { bind_to_port, bind, port, protocol, virtual_ports } = wanted;
    if port > u32::from(u16::MAX) {
        return false;
    }
    if bind_to_port && metadata.unprivileged_pod && (1..1024).contains(&port) {
        return false;
    }
    let wildcard = builder.wildcards().first().copied().unwrap_or("0.0.0.0");
    if (bind.is_empty() && !protocol.is_http()) || (!bind.is_empty() && bind != wildcard) {
        return true;
    }
    let other = |key: &str| metadata.other(key).parse().unwrap_or(0);
    let secure = [other("ENVOY_SECURE_METRICS_PORT"), other("ENVOY_SECURE_MERGED_METRICS_PORT")];
    let own = metadata.envoy_status_port == port
        || metadata.envoy_prometheus_port == port
        || secure.iter().any(|p| *p != 0 && *p == port);
    let mesh = builder.mesh();
    let virtual_listeners = [mesh.proxy_listen_port, mesh.proxy_inbound_listen_port];
    let of_mesh = virtual_ports && virtual_listeners.iter().any(|p| u32::try_from(*p) == Ok(port));
    !(own || of_mesh)
}

/// Traffic is not redirected to the proxy: its listeners bind their ports.
#[must_use]
pub fn is_not_captured(builder: &Builder) -> bool {
    builder.view.metadata.interception_mode == InterceptionMode::None
}
