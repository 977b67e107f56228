//! Simulation of a call through a proxy with given resources: its listener, filter chain, virtual host, route and cluster,
//! or an error. Pure, and the same algorithm that Istio's tests simulate Envoy with, so results can be compared with
//! recorded ones; comments mark the steps that are coarser than Envoy.
//!
//! It ignores clusters' endpoints, RBAC, and mutual TLS on the client side.

mod http;
mod listener;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::proto::envoy::{
    config::{listener::v3::Listener, route::v3::RouteConfiguration},
    extensions::filters::network::{
        http_connection_manager::v3::{HttpConnectionManager, http_connection_manager::RouteSpecifier},
        tcp_proxy::v3::tcp_proxy::ClusterSpecifier,
    },
};

/// Application protocol of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallProtocol {
    /// HTTP/1.1.
    #[default]
    Http,
    /// HTTP/2.
    Http2,
    /// Raw TCP bytes.
    Tcp,
}

/// Transport security of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallTls {
    /// No TLS: bytes as they are.
    #[default]
    Plaintext,
    /// TLS without a client certificate.
    Tls,
    /// TLS with a client certificate.
    Mtls,
}

/// A call, all defaults filled in.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// Destination IP.
    pub address: String,
    /// Destination port.
    pub port: u32,
    /// Path with query.
    pub path: String,
    /// `Host` header.
    pub host: String,
    /// Application protocol.
    pub protocol: CallProtocol,
    /// Transport security.
    pub tls: CallTls,
    /// ALPN that the client offers; empty is none.
    pub alpn: String,
    /// Server name that the client asks for.
    pub sni: String,
    /// Whether the call arrives at the workload's own proxy.
    pub inbound: bool,
    /// Name of the secret that counts as the mesh's own; empty is `default`.
    pub mtls_secret: String,
}

/// The result of a call. Empty texts mean "not reached".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Reason of the failure.
    pub error: Option<&'static str>,
    /// Listener name.
    pub listener: String,
    /// Filter chain name.
    pub filter_chain: String,
    /// RDS name; empty for an inline configuration.
    pub route_config: String,
    /// Virtual host name.
    pub virtual_host: String,
    /// Route name.
    pub route: String,
    /// Cluster, when there is exactly one.
    pub cluster: String,
}

/// The resources that a proxy holds.
#[derive(Debug, Clone, Default)]
pub struct Proxy {
    /// Listeners in order.
    pub listeners: Vec<Listener>,
    /// Route configurations by name.
    pub routes: BTreeMap<String, RouteConfiguration>,
}

impl Proxy {
    /// Simulates a call through the resources.
    #[must_use]
    pub fn call(&self, call: &Call) -> Outcome {
        let mut outcome = Outcome::default();
        if let Err(error) = self.run(call, &mut outcome) {
            outcome.error = Some(error);
        }
        outcome
    }

    fn run(&self, call: &Call, outcome: &mut Outcome) -> Result<(), &'static str> {
        if call.tls == CallTls::Plaintext && !call.alpn.is_empty() {
            return Err("invalid call, ALPN can only be sent in TLS requests");
        }
        let listener = self.listener_of(call).ok_or("no listener matched")?;
        outcome.listener.clone_from(&listener.name);
        let inspected = listener::Inspected::of(listener, call);
        let chain = listener::filter_chain(listener, call, &inspected)?;
        outcome.filter_chain.clone_from(&chain.name);
        listener::check_tls(chain, call)?;

        if let Some(manager) = listener::http_connection_manager(chain) {
            return self.http(call, chain.transport_socket.is_some(), &manager, outcome);
        }
        if let Some(proxy) = listener::tcp_proxy(chain)
            && let Some(ClusterSpecifier::Cluster(cluster)) = proxy.cluster_specifier
        {
            outcome.cluster = cluster;
        }
        Ok(())
    }

    fn listener_of(&self, call: &Call) -> Option<&Listener> {
        let named = |name: &str| self.listeners.iter().find(|l| l.name == name);
        if call.inbound {
            return named("virtualInbound");
        }
        let at = |ip: &str| self.listeners.iter().find(|l| listener::is_at(l, ip, call.port));
        at(&call.address).or_else(|| at("0.0.0.0")).or_else(|| named("virtualOutbound"))
    }

    fn http(
        &self,
        call: &Call,
        encrypted: bool,
        manager: &HttpConnectionManager,
        outcome: &mut Outcome,
    ) -> Result<(), &'static str> {
        if (call.tls != CallTls::Plaintext && !encrypted) || call.protocol == CallProtocol::Tcp {
            return Err("protocol error");
        }
        let config = match &manager.route_specifier {
            Some(RouteSpecifier::RouteConfig(config)) => Some(config),
            Some(RouteSpecifier::Rds(rds)) => {
                outcome.route_config.clone_from(&rds.route_config_name);
                self.routes.get(&rds.route_config_name)
            }
            _ => None,
        };
        let Some(config) = config else { return Err("no virtual host matched") };
        http::route(config, call, outcome)
    }
}
