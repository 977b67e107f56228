//! One server of a Gateway on one bound port, and the meaning of its protocol and TLS settings.

use std::{collections::BTreeSet, sync::Arc};

use super::ServerPort;
use crate::{
    model::{Config, Protocol},
    proto::networking::{self, server_tls_settings::TlSmode},
};

/// A server of a Gateway on one bound port.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayServer {
    /// `namespace/name` of its Gateway.
    pub gateway: Arc<str>,
    /// As written, with hosts in the forms `host` and `namespace/host` only: `./h` has become `namespace/h`, `*/h` `h`.
    pub spec: networking::Server,
    /// The server's port as written; vhost names carry its number.
    pub port: networking::Port,
    /// Protocol of the port.
    pub protocol: Protocol,
    /// Name of its route configuration; empty unless the server is terminated HTTP.
    pub route_name: String,
    /// Hosts without namespaces, sorted: the SNI names that a TLS server matches. Empty without TLS settings.
    pub sni_hosts: Vec<String>,
}

impl GatewayServer {
    /// The server on a bound port; `None` when it has no port.
    pub(super) fn new(config: &Config, spec: &networking::Server, gateway: &Arc<str>, bound: u32) -> Option<Self> {
        let port = spec.port.clone()?;
        let mut spec = spec.clone();
        spec.hosts = sanitize_hosts(&spec.hosts, &config.meta.namespace);
        let protocol = Protocol::parse(&port.protocol);
        let sni_hosts = if spec.tls.is_some() { sni_hosts(&spec.hosts) } else { Vec::new() };
        let mut server = Self { gateway: gateway.clone(), spec, port, protocol, route_name: String::new(), sni_hosts };
        server.route_name = server.rds_name(config, bound);
        Some(server)
    }

    /// Whether TLS settings are on a port other than plaintext HTTP (where they can only mean a redirect).
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.spec.tls.is_some() && !self.protocol.is_http()
    }

    /// Whether the server is HTTP, or HTTPS that is terminated here.
    #[must_use]
    pub fn is_http(&self) -> bool {
        self.protocol.is_http() || (self.protocol == Protocol::Https && !self.is_passthrough())
    }

    /// Whether the server is HTTPS that is terminated here.
    #[must_use]
    pub fn is_https_termination(&self) -> bool {
        self.spec.tls.is_some() && self.protocol == Protocol::Https && !self.is_passthrough()
    }

    /// Whether TLS is passed through.
    #[must_use]
    pub fn is_passthrough(&self) -> bool {
        matches!(self.tls_mode(), Some(TlSmode::Passthrough | TlSmode::AutoPassthrough))
    }

    /// Whether the server is other than HTTP and its TLS, if any, is terminated here (Istio's
    /// `IsTCPServerWithTLSTermination`).
    #[must_use]
    pub fn is_tcp_termination(&self) -> bool {
        !self.is_passthrough() && !self.protocol.is_http() && self.protocol != Protocol::Https
    }

    /// Whether the server can be offered over QUIC too: HTTPS that is terminated here.
    #[must_use]
    pub fn can_be_http3(&self) -> bool {
        self.protocol == Protocol::Https && !self.is_passthrough()
    }

    /// The TLS mode; `None` without TLS settings. An unknown number counts as `PASSTHROUGH`.
    #[must_use]
    pub fn tls_mode(&self) -> Option<TlSmode> {
        self.spec.tls.as_ref().map(|t| TlSmode::try_from(t.mode).unwrap_or(TlSmode::Passthrough))
    }

    /// Whether plaintext requests are redirected to HTTPS.
    #[must_use]
    pub fn redirects_to_https(&self) -> bool {
        self.spec.tls.as_ref().is_some_and(|t| t.https_redirect)
    }

    pub(super) fn server_port(&self, bound: u32) -> ServerPort {
        ServerPort { number: bound, protocol: self.port.protocol.clone(), bind: self.spec.bind.clone() }
    }

    fn rds_name(&self, config: &Config, bound: u32) -> String {
        let bind = if self.spec.bind.is_empty() { String::new() } else { format!(".{}", self.spec.bind) };
        if self.protocol.is_http() {
            return format!("http.{bound}{bind}");
        }
        if self.protocol == Protocol::Https && !self.is_passthrough() {
            let (number, port) = (self.port.number, &self.port.name);
            return format!("https.{number}.{port}.{}.{}{bind}", config.meta.name, config.meta.namespace);
        }
        String::new()
    }
}

/// `./host` becomes `namespace/host`, `*/host` becomes `host`, and `*/*` makes the whole list `*`.
fn sanitize_hosts(hosts: &[String], namespace: &str) -> Vec<String> {
    let mut clean = Vec::with_capacity(hosts.len());
    for host in hosts {
        match host.split_once('/') {
            Some((".", name)) => clean.push(format!("{namespace}/{name}")),
            Some(("*", "*")) => return vec!["*".to_string()],
            Some(("*", name)) => clean.push(name.to_string()),
            _ => clean.push(host.clone()),
        }
    }
    clean
}

fn sni_hosts(hosts: &[String]) -> Vec<String> {
    let bare: BTreeSet<&str> = hosts.iter().map(|h| h.split_once('/').map_or(h.as_str(), |(_, name)| name)).collect();
    bare.into_iter().map(String::from).collect()
}
