//! Sidecar: ingress and egress listeners, outbound traffic policy.

#![allow(deprecated, reason = "deprecated fields are validated as long as Istio reads them")]

use std::collections::{BTreeMap, BTreeSet};

use super::{
    address::{self, UNIX_PREFIX},
    check::{Check, Checked},
    destination, names, range, server_tls, traffic_policy,
};
use crate::{
    model::Config,
    proto::{
        mesh::mesh_config::outbound_traffic_policy::Mode as MeshMode,
        networking::{
            CaptureMode, IstioEgressListener, IstioIngressListener, OutboundTrafficPolicy, ServerTlsSettings, Sidecar,
            outbound_traffic_policy::Mode, server_tls_settings::TlSmode,
        },
    },
};

pub(super) fn validate(c: &mut Check, config: &Config, sidecar: &Sidecar) {
    names::selector(c, "workloadSelector", sidecar.workload_selector.as_ref().map(|s| &s.labels));
    c.need(
        !sidecar.egress.is_empty()
            || !sidecar.ingress.is_empty()
            || sidecar.outbound_traffic_policy.is_some()
            || sidecar.inbound_connection_pool.is_some(),
        "it is empty; set ingress, egress, outboundTrafficPolicy or inboundConnectionPool",
    );
    let mut ports = BTreeSet::new();
    c.each("ingress", &sidecar.ingress, |c, listener| ingress(c, listener, &mut ports));
    traffic_policy::connection_pool(c, "inboundConnectionPool", sidecar.inbound_connection_pool.as_ref());
    let last = sidecar.egress.len().saturating_sub(1);
    let (mut ports, mut sockets) = (BTreeSet::new(), BTreeSet::new());
    for (i, listener) in sidecar.egress.iter().enumerate() {
        c.at(format_args!("egress[{i}]"), |c| {
            c.need(listener.port.is_some() || i == last, "a listener without port must be the last one");
            egress_port(c, listener);
            let unique = match &listener.port {
                None => true,
                Some(port) if port.number == 0 => sockets.insert(listener.bind.clone()),
                Some(port) => ports.insert(port.number),
            };
            c.need(unique, "another listener has this port or socket already");
            egress_hosts(c, &config.meta.namespace, &listener.hosts);
        });
    }
    if let Some(policy) = &sidecar.outbound_traffic_policy {
        c.at("outboundTrafficPolicy", |c| outbound(c, policy));
    }
}

fn ingress(c: &mut Check, listener: &IstioIngressListener, ports: &mut BTreeSet<u32>) {
    let Some(port) = &listener.port else { return c.error("port is required") };
    c.need(port.target_port == 0, "port.targetPort has no effect on a Sidecar; remove it");
    if !port.name.is_empty() {
        c.field("port.name", names::port_name(&port.name));
    }
    c.field("port.protocol", range::protocol(&port.protocol));
    c.field("port.number", range::port(port.number));
    if !listener.bind.is_empty() {
        c.field("bind", address::ip(&listener.bind));
    }
    c.need(ports.insert(port.number), format_args!("port {} is used twice", port.number));
    if !listener.default_endpoint.is_empty() {
        c.field("defaultEndpoint", default_endpoint(&listener.default_endpoint));
    }
    let protocol = range::declared(&port.protocol);
    if let Some(tls) = &listener.tls {
        c.at("tls", |c| {
            ingress_tls(c, tls);
            c.need(protocol.is_tls(), "the port must have protocol HTTPS or TLS");
            server_tls::validate(c, tls);
        });
    }
    traffic_policy::connection_pool(c, "connectionPool", listener.connection_pool.as_ref());
    if listener.connection_pool.as_ref().is_some_and(|p| p.http.is_some()) && !protocol.is_http() {
        c.warn("connectionPool.http has no effect: the protocol of the port is not HTTP");
    }
}

fn ingress_tls(c: &mut Check, tls: &ServerTlsSettings) {
    for (name, unset) in [
        ("subjectAltNames", tls.subject_alt_names.is_empty()),
        ("httpsRedirect", !tls.https_redirect),
        ("credentialName", tls.credential_name.is_empty()),
        ("credentialNames", tls.credential_names.is_empty()),
        ("tlsCertificates", tls.tls_certificates.is_empty()),
    ] {
        c.need(unset, format_args!("{name} is not supported on a Sidecar; remove it"));
    }
    c.need(
        !matches!(tls.mode(), TlSmode::IstioMutual | TlSmode::AutoPassthrough),
        "mode must be SIMPLE, MUTUAL or PASSTHROUGH",
    );
}

/// `127.0.0.1:PORT`, `0.0.0.0:PORT`, `[::1]:PORT`, `[::]:PORT`, `:PORT` or `unix://PATH`.
fn default_endpoint(text: &str) -> Checked {
    if let Some(path) = text.strip_prefix(UNIX_PREFIX) {
        return address::unix(path);
    }
    let split = match text.strip_prefix('[') {
        Some(rest) => rest.split_once("]:"),
        None => text.rsplit_once(':').filter(|(host, _)| !host.contains(':')),
    };
    match split {
        Some(("" | "127.0.0.1" | "0.0.0.0" | "::1" | "::", port)) => {
            range::port(port.parse().map_err(|_| format!("port {port:?} is not a number"))?)
        }
        _ => Err(format!("{text:?} must be 127.0.0.1:PORT, 0.0.0.0:PORT, [::1]:PORT, [::]:PORT, :PORT or unix://PATH")),
    }
}

fn egress_port(c: &mut Check, listener: &IstioEgressListener) {
    let Some(port) = &listener.port else { return };
    c.need(port.target_port == 0, "port.targetPort has no effect on a Sidecar; remove it");
    if !port.name.is_empty() {
        c.field("port.name", names::port_name(&port.name));
    }
    c.field("port.protocol", range::protocol(&port.protocol));
    if port.number != 0 {
        c.field("port.number", range::port(port.number));
        if !listener.bind.is_empty() {
            c.field("bind", address::ip(&listener.bind));
        }
        return;
    }
    match listener.bind.strip_prefix(UNIX_PREFIX) {
        Some(path) => c.field("bind", address::unix(path)),
        None => c.error("a port with number 0 needs a unix:// bind"),
    }
    c.need(listener.capture_mode() != CaptureMode::Iptables, "captureMode must be DEFAULT or NONE for a Unix socket");
}

fn egress_hosts(c: &mut Check, own: &str, hosts: &[String]) {
    c.need(!hosts.is_empty(), "hosts: at least one is required");
    let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    c.each("hosts", hosts, |c, host| names::namespaced_host(c, host, false, false));
    for host in hosts {
        let Some((namespace, name)) = host.split_once('/').filter(|(n, _)| !n.starts_with('~')) else { continue };
        let known = seen.entry(if namespace == "." { own } else { namespace }).or_default();
        let twice = if name == "*" { !known.is_empty() } else { known.contains(name) || known.contains("*") };
        if twice {
            c.warn(format_args!("hosts: {host:?} is selected twice"));
        }
        known.insert(name);
    }
    if seen.len() > 1 && seen.get("*").is_some_and(|n| n.contains("*")) {
        c.warn("hosts: '*/*' selects everything; the others have no effect");
    }
}

fn outbound(c: &mut Check, policy: &OutboundTrafficPolicy) {
    if policy.mode == MeshMode::AllowAnyDynamicDns as i32 {
        return c.error("mode ALLOW_ANY_DYNAMIC_DNS is for the mesh only");
    }
    let Some(proxy) = &policy.egress_proxy else { return };
    if policy.mode() != Mode::AllowAny {
        return c.error("egressProxy needs mode ALLOW_ANY");
    }
    c.at("egressProxy", |c| {
        c.field("host", names::fqdn(&proxy.host));
        c.need(proxy.port.is_some(), "port is required");
        destination::validate(c, proxy);
    });
}
