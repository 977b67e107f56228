//! The chains of one inbound port.

use std::sync::Arc;

use super::{
    CLASS, VIRTUAL_INBOUND,
    options::{self, Known, MatchOptions},
};
use crate::{
    generate::{
        listener::{
            bind::listener_name,
            builder::Builder,
            hcm,
            http_options::{HttpOptions, Routes},
            tcp,
            tls_context::{self, Transport},
        },
        names::config_metadata,
        route,
    },
    model::{Config, Hostname, Port, Protocol},
    proto::{
        envoy::{
            config::listener::v3::{Filter, FilterChain, FilterChainMatch},
            extensions::{
                filters::network::http_connection_manager::v3::http_connection_manager::SetCurrentClientCertDetails,
                transport_sockets::tls::v3::DownstreamTlsContext,
            },
        },
        networking::ServerTlsSettings,
    },
    push::authn::{MtlsMode, PeerPolicy},
};

/// The origin of an inbound port: a port of a service, of a Sidecar's ingress, or the catch-all for other ports.
#[derive(Debug, Clone, Default)]
pub struct ChainConfig {
    /// Cluster that the traffic goes to.
    pub cluster: String,
    /// Port of the service; 0 for the catch-all.
    pub port: Port,
    /// Port that the workload listens on; 0 matches every port.
    pub target_port: u32,
    /// Address that names the chain, and that it binds where it is not captured.
    pub bind: String,
    /// Further addresses to bind.
    pub extra_binds: Vec<String>,
    /// It has a socket of its own.
    pub bind_to_port: bool,
    /// TLS settings of a Sidecar's ingress.
    pub tls: Option<ServerTlsSettings>,
    /// Takes the traffic that matches no other chain.
    pub passthrough: bool,
    /// Host for telemetry.
    pub host: Hostname,
    /// Name and namespace of the Kubernetes Service, for statistics.
    pub kubernetes: Option<(Arc<str>, Arc<str>)>,
    /// The object that the chain comes from.
    pub origin: Option<Arc<Config>>,
}

impl ChainConfig {
    /// The name of the chain (and of the listener, if it has one of its own).
    #[must_use]
    pub fn name(&self, http: bool) -> String {
        match (self.passthrough, http) {
            (true, true) => "virtualInbound-catchall-http".to_string(),
            (true, false) => VIRTUAL_INBOUND.to_string(),
            (false, _) => listener_name(&self.bind, self.target_port),
        }
    }

    fn http_stat_prefix(&self) -> String {
        let name = if self.passthrough { self.cluster.clone() } else { format!("inbound_{}", self.name(true)) };
        hcm::delimited(&name)
    }

    /// The prefix of TCP statistics, by the mesh's pattern (Istio's `BuildInboundStatPrefix`).
    fn tcp_stat_prefix(&self, pattern: &str) -> String {
        if pattern.is_empty() {
            return self.cluster.clone();
        }
        let short = self.kubernetes.as_ref().map(|(name, namespace)| format!("{name}.{namespace}"));
        let name = self.kubernetes.as_ref().map(|(name, _)| name.to_string());
        pattern
            .replace("%SERVICE%", short.as_deref().unwrap_or(&self.host))
            .replace("%SERVICE_NAME%", name.as_deref().unwrap_or(&self.host))
            .replace("%SERVICE_FQDN%", &self.host)
            .replace("%SUBSET_NAME%", "")
            .replace("%SERVICE_PORT%", &self.port.port.to_string())
            .replace("%SERVICE_PORT_NAME%", &self.port.name)
    }
}

/// All chains of a port under a policy.
#[must_use]
pub fn for_port(builder: &Builder, mut config: ChainConfig, policy: &PeerPolicy) -> Vec<FilterChain> {
    let asked = policy.for_port(config.target_port);
    let mode = effective(builder, asked);
    // A Sidecar's own TLS counts only where the mesh's is off: a connection cannot be both.
    let own = config.tls.take().filter(|_| asked == MtlsMode::Disable);
    if let Some(settings) = own {
        config.port.protocol = after_termination(config.port.protocol);
        let context = tls_context::server(builder, &settings, Transport::Tcp);
        let options = options::own_tls(known(config.port.protocol));
        return options.iter().map(|o| chain(builder, &config, o, false, |_| context.clone())).collect();
    }
    let options = options::of_port(mode, known(config.port.protocol), &builder.plaintext_http_alpns());
    let mutual = |http| tls_context::mesh_mutual(builder, http);
    options.iter().map(|o| chain(builder, &config, o, o.terminates, mutual)).collect()
}

/// The mode that can be served: without a certificate a permissive port is a plaintext one.
fn effective(builder: &Builder, mode: MtlsMode) -> MtlsMode {
    if mode == MtlsMode::Permissive && !tls_context::has_workload_certificate(builder) {
        return MtlsMode::Disable;
    }
    mode
}

fn known(protocol: Protocol) -> Known {
    if protocol.is_http() {
        Known::Http
    } else if protocol.is_tcp() || protocol == Protocol::Udp {
        Known::Tcp
    } else {
        Known::Nothing
    }
}

/// The protocol inside of TLS.
#[must_use]
pub const fn after_termination(protocol: Protocol) -> Protocol {
    match protocol {
        Protocol::Https => Protocol::Http,
        Protocol::Tls => Protocol::Tcp,
        other => other,
    }
}

fn chain(
    builder: &Builder,
    config: &ChainConfig,
    options: &MatchOptions,
    peer_is_proven: bool,
    tls: impl Fn(bool) -> DownstreamTlsContext,
) -> FilterChain {
    let filters =
        if options.http { http_filters(builder, config, peer_is_proven) } else { tcp_filters(builder, config) };
    FilterChain {
        name: config.name(options.http),
        filter_chain_match: Some(FilterChainMatch {
            application_protocols: options.application_protocols.clone(),
            transport_protocol: options.transport_protocol.to_string(),
            destination_port: Some(config.target_port).filter(|p| *p > 0),
            ..Default::default()
        }),
        filters,
        transport_socket: options.terminates.then(|| tls_context::transport_socket(&tls(options.http))),
        metadata: config.origin.as_ref().map(|c| config_metadata(&c.meta, c.kind())),
        ..Default::default()
    }
}

fn tcp_filters(builder: &Builder, config: &ChainConfig) -> Vec<Filter> {
    let stat_prefix = config.tcp_stat_prefix(&builder.mesh().inbound_cluster_stat_name);
    let mut proxy = tcp::to_cluster(&stat_prefix, &config.cluster);
    proxy.idle_timeout = builder.idle_timeout;
    builder.telemetry(CLASS).logs.log_connections(&mut proxy);
    let terminal = tcp::protocol_stack(builder, config.port.protocol, &proxy, &config.cluster);
    tcp::complete(builder, CLASS, config.port.port, terminal, true, None, true)
}

fn http_filters(builder: &Builder, config: &ChainConfig, peer_is_proven: bool) -> Vec<Filter> {
    let mut filters: Vec<Filter> = tcp::metadata_exchange(builder).into_iter().collect();
    filters.extend(builder.extensions().before_http(CLASS, config.target_port));
    let routes = Routes::Inline(Box::new(route::inbound(
        &config.cluster,
        &config.host,
        config.port.port,
        config.port.protocol,
        builder.mesh(),
    )));
    let mut options = HttpOptions::new(builder, CLASS, config.port.protocol, routes);
    let headers = builder.headers(CLASS);
    let details = headers.set_current_client_cert.unwrap_or_default();
    options.stat_prefix = config.http_stat_prefix();
    options.peer_is_proven = peer_is_proven;
    options.port = config.target_port;
    options.manager.forward_client_cert_details = headers.forward_client_cert.into();
    options.manager.set_current_client_cert_details = Some(SetCurrentClientCertDetails {
        subject: Some(details.subject.unwrap_or(true)),
        uri: details.uri.unwrap_or(true),
        dns: details.dns.unwrap_or(true),
        cert: details.cert.unwrap_or(false),
        chain: details.chain.unwrap_or(false),
        ..Default::default()
    });
    if config.port.protocol.is_http2() {
        options.manager.http2_protocol_options = Some(Default::default());
    }
    filters.push(hcm::filter(&hcm::build(builder, options)));
    filters
}

/// Envoy refuses a listener with an unknown cipher; a repeated name is redundant.
pub fn drop_unknown_ciphers(ciphers: &mut Vec<String>) {
    let mut seen = std::collections::HashSet::new();
    ciphers.retain(|c| is_known_cipher(c) && seen.insert(c.clone()));
}

/// Whether a text is a cipher of Envoy, or an expression over ciphers.
fn is_known_cipher(cipher: &str) -> bool {
    const KNOWN: &[&str] = &[
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-RSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "ECDHE-RSA-CHACHA20-POLY1305",
        "ECDHE-PSK-CHACHA20-POLY1305",
        "ECDHE-ECDSA-AES128-SHA",
        "ECDHE-RSA-AES128-SHA",
        "ECDHE-PSK-AES128-CBC-SHA",
        "ECDHE-ECDSA-AES256-SHA",
        "ECDHE-RSA-AES256-SHA",
        "ECDHE-PSK-AES256-CBC-SHA",
        "AES128-GCM-SHA256",
        "AES256-GCM-SHA384",
        "AES128-SHA",
        "PSK-AES128-CBC-SHA",
        "AES256-SHA",
        "PSK-AES256-CBC-SHA",
        "DES-CBC3-SHA",
    ];
    let expression = cipher.chars().next().is_none_or(|c| !c.is_alphanumeric());
    cipher == "ALL" || expression || KNOWN.contains(&cipher)
}
