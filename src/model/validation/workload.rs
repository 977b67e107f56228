//! WorkloadEntry, WorkloadGroup and the endpoints of a ServiceEntry.

use std::collections::BTreeSet;

use super::{
    address::{self, UNIX_PREFIX, is_ip},
    check::Check,
    header, names, range,
};
use crate::proto::networking::{ReadinessProbe, WorkloadEntry, WorkloadGroup, readiness_probe::HealthCheckMethod};

/// A stand-alone WorkloadEntry.
pub(super) fn entry(c: &mut Check, entry: &WorkloadEntry) {
    endpoint(c, entry, None, true);
}

/// A workload. `service_ports`: port names of its ServiceEntry. `names_allowed`: the address may be a host name.
pub(super) fn endpoint(c: &mut Check, e: &WorkloadEntry, service_ports: Option<&BTreeSet<&str>>, names_allowed: bool) {
    if e.address.is_empty() {
        if e.network.is_empty() {
            return c.at("address", |c| c.error("an address is required"));
        }
        c.at("address", |c| c.warn(format_args!("unset, with network {:?}", e.network)));
    }
    if let Some(path) = e.address.strip_prefix(UNIX_PREFIX) {
        c.field("address", address::unix(path));
        c.need(e.ports.is_empty(), "a Unix socket has no ports; remove them");
        c.need(service_ports.is_none_or(|p| p.len() == 1), "a Unix socket needs exactly one service port");
    } else if !e.address.is_empty() {
        host_address(c, &e.address, names_allowed);
    }
    ports(c, e, service_ports);
    names::labels(c, "labels", &e.labels);
}

/// An endpoint of a ServiceEntry with DNS resolution.
pub(super) fn dns_endpoint(c: &mut Check, e: &WorkloadEntry, service_ports: &BTreeSet<&str>) {
    host_address(c, &e.address, true);
    names::labels(c, "labels", &e.labels);
    ports(c, e, Some(service_ports));
}

fn host_address(c: &mut Check, address: &str, names_allowed: bool) {
    if is_ip(address) || (names_allowed && names::fqdn(address).is_ok()) {
        return;
    }
    let wanted = if names_allowed { "an IP address or a full DNS name" } else { "an IP address" };
    c.at("address", |c| c.error(format_args!("{address:?} must be {wanted}")));
}

fn ports(c: &mut Check, e: &WorkloadEntry, service_ports: Option<&BTreeSet<&str>>) {
    for (name, number) in &e.ports {
        c.at("ports", |c| {
            c.need(
                service_ports.is_none_or(|p| p.contains(name.as_str())),
                format_args!("port {name:?} is not one of the service entry; add it there"),
            );
        });
        c.field("ports", names::port_name(name));
        c.field(format_args!("ports.{name}"), range::port(*number));
    }
}

/// A WorkloadGroup. Its template is an incomplete WorkloadEntry: the address is set when a workload registers.
pub(super) fn group(c: &mut Check, group: &WorkloadGroup) {
    if group.template.is_none() {
        return c.at("template", |c| c.error("a template is required"));
    }
    if let Some(metadata) = &group.metadata {
        names::labels(c, "metadata.labels", &metadata.labels);
    }
    if let Some(p) = &group.probe {
        c.at("probe", |c| probe(c, p));
    }
}

fn probe(c: &mut Check, probe: &ReadinessProbe) {
    for (name, value) in [
        ("periodSeconds", probe.period_seconds),
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        c.field(name, range::natural(value));
    }
    match &probe.health_check_method {
        Some(HealthCheckMethod::HttpGet(get)) => c.at("httpGet", |c| {
            c.field("port", range::port(get.port));
            c.need(matches!(get.scheme.as_str(), "" | "HTTP" | "HTTPS"), "scheme must be HTTP or HTTPS");
            c.each("httpHeaders", &get.http_headers, |c, h| c.field("name", header::probe_name(&h.name)));
        }),
        Some(HealthCheckMethod::TcpSocket(socket)) => c.field("tcpSocket.port", range::port(socket.port)),
        Some(HealthCheckMethod::Exec(exec)) => c.need(!exec.command.is_empty(), "exec.command is required"),
        _ => c.error("one of httpGet, tcpSocket and exec is required"),
    }
}
