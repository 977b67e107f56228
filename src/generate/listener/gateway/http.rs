//! Chains that end in an HTTP connection manager: plaintext HTTP, and HTTPS that ends at the gateway.

use super::{chain::Chain, socket::Socket};
use crate::{
    generate::{
        listener::{
            builder::Builder,
            hcm,
            http_options::{HttpOptions, Routes},
            tls_context::{self, Transport},
        },
        proxy_config::{self, ListenerClass},
    },
    model::{Protocol, cipher},
    proto::{
        envoy::{
            config::listener::v3::Filter,
            extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
                ForwardClientCertDetails, SetCurrentClientCertDetails,
            },
        },
        networking::ServerTlsSettings,
    },
    push::gateways::GatewayServer,
};

/// The one chain of a plaintext port, whose virtual hosts are those of all servers there.
pub(super) fn plain_text(builder: &Builder, protocol: Protocol, route_name: &str, socket: &Socket) -> Chain {
    let options = options(builder, protocol, route_name, socket);
    Chain {
        filters: with_extensions(builder, options),
        origin: format!("plaintext HTTP with routes {route_name}"),
        ..Chain::default()
    }
}

/// The chain of an HTTPS server, over TCP or QUIC.
pub(super) fn terminated(builder: &Builder, server: &GatewayServer, socket: &Socket) -> Chain {
    let mut options = options(builder, server.protocol, &server.route_name, socket);
    options.http3_only = socket.quic;
    if !server.spec.name.is_empty() {
        options.stat_prefix.clone_from(&server.spec.name);
    }
    let transport = if socket.quic { Transport::Quic } else { Transport::Tcp };
    Chain {
        sni: server.sni_hosts.clone(),
        tls: server.spec.tls.as_ref().map(|t| tls_context::server(builder, &usable_ciphers(t), transport)),
        filters: with_extensions(builder, options),
        origin: format!("gateway {} port {}", server.gateway, server.port.name),
        ..Chain::default()
    }
}

/// The connection manager, behind the extensions of connections; over QUIC there is no connection that these would see. Each chain has
/// them: Istio gives them to the first chain of a port alone.
fn with_extensions(builder: &Builder, options: HttpOptions) -> Vec<Filter> {
    let mut filters = match options.http3_only {
        true => Vec::new(),
        false => builder.extensions().before_http(options.class, options.port),
    };
    filters.push(hcm::filter(&hcm::build(builder, options)));
    filters
}

fn options(builder: &Builder, protocol: Protocol, route_name: &str, socket: &Socket) -> HttpOptions {
    let routes = Routes::Rds(route_name.to_string());
    let mut options = HttpOptions::new(builder, ListenerClass::Gateway, protocol, routes);
    options.use_remote_address = true;
    options.port = socket.port;
    options.stat_prefix = hcm::delimited(&format!("outbound_{}", socket.name()));
    let manager = &mut options.manager;
    manager.http_protocol_options.get_or_insert_default();
    let topology = builder.proxy_config.gateway_topology.as_ref();
    manager.xff_num_trusted_hops = topology.map_or(0, |t| t.num_trusted_proxies);
    // The settings of `proxyHeaders` for client certificates are for sidecars: gateways have a field of their own.
    let forward = topology
        .and_then(|t| proxy_config::forward_client_cert(t.forward_client_cert_details()))
        .unwrap_or(ForwardClientCertDetails::SanitizeSet);
    manager.forward_client_cert_details = forward.into();
    if matches!(forward, ForwardClientCertDetails::AppendForward | ForwardClientCertDetails::SanitizeSet) {
        manager.set_current_client_cert_details = Some(SetCurrentClientCertDetails {
            subject: Some(true),
            cert: true,
            dns: true,
            uri: true,
            ..Default::default()
        });
    }
    options
}

/// Cipher suites that Envoy can be given (Istio's `FilterCipherSuites`): known ones and expressions, once each. One unknown
/// name would make it refuse the listener.
pub(super) fn usable_ciphers(settings: &ServerTlsSettings) -> ServerTlsSettings {
    let mut settings = settings.clone();
    let mut suites: Vec<String> = Vec::with_capacity(settings.cipher_suites.len());
    for suite in settings.cipher_suites {
        if cipher::is_known(&suite) && !suites.contains(&suite) {
            suites.push(suite);
        }
    }
    settings.cipher_suites = suites;
    settings
}
