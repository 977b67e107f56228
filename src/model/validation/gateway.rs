//! Gateway: servers with hosts, ports, binds and TLS.

#![allow(deprecated, reason = "deprecated fields are validated as long as Istio reads them")]

use std::collections::BTreeSet;

use super::{
    address::{self, UNIX_PREFIX},
    check::Check,
    names, range, server_tls,
};
use crate::{
    model::{Config, Protocol},
    proto::networking::{Gateway, Server, server_tls_settings::TlSmode},
};

const SEMANTICS: &str = "internal.istio.io/gateway-semantics";

pub(super) fn validate(c: &mut Check, config: &Config, gateway: &Gateway) {
    // Gateways generated from a Gateway API object have names that are not DNS labels.
    let kubernetes = config.meta.annotations.get(SEMANTICS).is_some_and(|v| v == "gateway");
    c.need(
        kubernetes || names::is_dns_label(&config.meta.name),
        format_args!("metadata.name {:?} must be a DNS label (no dots)", config.meta.name),
    );
    c.need(!gateway.servers.is_empty(), "servers: at least one is required");
    let mut port_names = BTreeSet::new();
    c.each("servers", &gateway.servers, |c, s| {
        server(c, s, kubernetes);
        let Some(port) = &s.port else { return };
        c.need(port_names.insert(port.name.clone()), format_args!("port.name {:?} is used twice", port.name));
        if !range::declared(&port.protocol).is_http() && s.tls.as_ref().is_some_and(|t| t.https_redirect) {
            c.warn("tls.httpsRedirect is for HTTP servers only");
        }
    });
}

pub(super) fn server(c: &mut Check, server: &Server, kubernetes: bool) {
    c.need(!server.hosts.is_empty(), "hosts: at least one is required");
    c.each("hosts", &server.hosts, |c, host| names::namespaced_host(c, host, true, kubernetes));
    let unix = server.bind.strip_prefix(UNIX_PREFIX);
    match unix {
        Some(path) => c.field("bind", address::unix(path)),
        None if !server.bind.is_empty() => c.field("bind", address::ip(&server.bind)),
        None => {}
    }
    if let Some(tls) = &server.tls {
        c.at("tls", |c| server_tls::validate(c, tls));
    }
    let Some(port) = &server.port else { return c.error("port is required") };
    c.need(unix.is_none() || port.number == 0, "port.number must be 0 for a Unix socket");
    let protocol = range::declared(&port.protocol);
    c.at("port", |c| {
        c.need(
            protocol != Protocol::Unsupported,
            format_args!(
                "protocol {:?} is not supported; use HTTP, HTTPS, GRPC, GRPC-WEB, HTTP2, MONGO, TCP or TLS",
                port.protocol
            ),
        );
        if port.number > 0 || unix.is_none() {
            c.field("number", range::port(port.number));
        }
        c.need(port.target_port == 0, "targetPort has no effect on a Gateway; remove it");
        c.need(!port.name.is_empty(), "name is required");
    });
    let sound = protocol != Protocol::Unsupported
        && port.target_port == 0
        && !port.name.is_empty()
        && ((port.number == 0 && unix.is_some()) || range::port(port.number).is_ok());
    if sound {
        fits(c, server, protocol);
    }
}

/// TLS settings are for TLS ports; a plain HTTP port may only redirect.
fn fits(c: &mut Check, server: &Server, protocol: Protocol) {
    match &server.tls {
        None => c.need(!protocol.is_tls(), format_args!("tls is required for protocol {}", protocol.as_str())),
        Some(_) if protocol.is_tls() => {}
        Some(tls) if protocol.is_http() => {
            let passthrough = matches!(tls.mode(), TlSmode::Passthrough | TlSmode::AutoPassthrough);
            let certificates =
                [&tls.ca_certificates, &tls.private_key, &tls.server_certificate].iter().any(|f| !f.is_empty());
            c.need(passthrough && !certificates, "tls: a plain HTTP port can only redirect; use protocol HTTPS");
        }
        Some(_) => c.error(format_args!("tls cannot be set for protocol {}; use TLS or HTTPS", protocol.as_str())),
    }
}
