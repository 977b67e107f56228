//! ServiceEntry: hosts, addresses, ports, and the settings that each resolution allows.

use std::collections::BTreeSet;

use super::{address, check::Check, names, range, workload};
use crate::{
    model::{Config, Protocol, host},
    proto::networking::{
        ServiceEntry,
        service_entry::{Location, Resolution},
    },
};

const AUTO_ALLOCATE: &str = "networking.istio.io/enable-autoallocate-ip";
const USE_WAYPOINT: &str = "istio.io/use-waypoint";

pub(super) fn validate(c: &mut Check, config: &Config, entry: &ServiceEntry) {
    let selects = names::selector(c, "workloadSelector", entry.workload_selector.as_ref().map(|s| &s.labels));
    c.need(
        entry.workload_selector.is_none() || entry.endpoints.is_empty(),
        "only one of workloadSelector and endpoints may be set",
    );
    c.need(!entry.hosts.is_empty(), "hosts: at least one is required");
    c.each("hosts", &entry.hosts, |c, name| {
        if name == "*" {
            return c.error("'*' alone is not allowed; name a domain");
        }
        if let Err(text) = names::wildcard_domain(name) {
            c.error(text);
        }
        if let Err(text) = names::no_partial_wildcard(name)
            && entry.resolution() != Resolution::DynamicDns
        {
            c.warn(text);
        }
    });
    for (i, text) in entry.addresses.iter().enumerate() {
        c.field(format_args!("addresses[{i}]"), address::subnet(text));
    }
    c.need(
        matches!(entry.resolution(), Resolution::None | Resolution::Static)
            || !entry.addresses.iter().any(|a| a.contains('/')),
        "addresses: CIDR blocks are for resolution NONE and STATIC only",
    );
    ports(c, config, entry);
    resolution(c, config, entry, selects);
    let streams = entry.ports.iter().any(|p| {
        let protocol = range::declared(&p.protocol);
        !protocol.is_http() && !protocol.is_tls()
    });
    c.need(
        entry.resolution() == Resolution::None || entry.hosts.len() < 2 || !streams,
        "several hosts cannot be told apart on a port that is neither HTTP nor TLS; write one entry per host",
    );
    names::export_to(c, &config.meta.namespace, &entry.export_to, names::Export::ServiceEntry);
}

fn allocates(config: &Config, entry: &ServiceEntry) -> bool {
    entry.resolution() != Resolution::None
        && !config.meta.labels.get(AUTO_ALLOCATE).is_some_and(|v| v.eq_ignore_ascii_case("false"))
        && entry.addresses.is_empty()
        && entry.hosts.iter().any(|h| !host::is_wildcard(h))
}

fn ports(c: &mut Check, config: &Config, entry: &ServiceEntry) {
    let (mut known, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    // With DYNAMIC_DNS a TCP port is refused.
    let dynamic = entry.resolution() == Resolution::DynamicDns;
    let unreachable = entry.addresses.is_empty() && !allocates(config, entry) && !dynamic;
    c.each("ports", &entry.ports, |c, port| {
        c.need(known.insert(port.name.clone()), format_args!("port name {:?} is used twice", port.name));
        c.need(numbers.insert(port.number), format_args!("port {} is used twice", port.number));
        if port.target_port != 0 {
            c.field("targetPort", range::port(port.target_port));
        }
        if unreachable && matches!(port.protocol.as_str(), "" | "TCP") {
            c.warn("a TCP port needs addresses when none is allocated automatically");
        }
        c.field("name", names::port_name(&port.name));
        c.field("protocol", range::protocol(&port.protocol));
        c.field("number", range::port(port.number));
    });
}

fn resolution(c: &mut Check, config: &Config, entry: &ServiceEntry, selects: bool) {
    let ports: BTreeSet<&str> = entry.ports.iter().map(|p| p.name.as_str()).collect();
    match entry.resolution() {
        Resolution::None => {
            c.need(entry.endpoints.is_empty(), "endpoints: none may be given with resolution NONE");
            if entry.workload_selector.is_some() && selects {
                c.warn("workloadSelector has no effect with resolution NONE");
            }
        }
        Resolution::Static => {
            c.each("endpoints", &entry.endpoints, |c, e| workload::endpoint(c, e, Some(&ports), false));
        }
        Resolution::Dns | Resolution::DnsRoundRobin => dns(c, entry, &ports),
        Resolution::DynamicDns => dynamic_dns(c, config, entry),
    }
}

fn dns(c: &mut Check, entry: &ServiceEntry, ports: &BTreeSet<&str>) {
    if entry.endpoints.is_empty()
        && let Some(name) = entry.hosts.iter().find(|h| names::fqdn(h).is_err())
    {
        c.error(format_args!("hosts: {name:?} cannot be resolved; give endpoints or a full DNS name"));
    }
    c.need(
        entry.resolution() != Resolution::DnsRoundRobin || entry.endpoints.len() < 2,
        "endpoints: at most one with resolution DNS_ROUND_ROBIN",
    );
    c.each("endpoints", &entry.endpoints, |c, e| workload::dns_endpoint(c, e, ports));
    let streams = entry.ports.iter().any(|p| range::declared(&p.protocol).is_tcp());
    if streams && !entry.addresses.is_empty() && entry.hosts.len() > 1 {
        c.warn("several hosts share the addresses of a TCP port");
    }
}

fn dynamic_dns(c: &mut Check, config: &Config, entry: &ServiceEntry) {
    c.need(
        entry.hosts.iter().all(|h| host::is_wildcard(h)),
        "hosts: each must be a wildcard with resolution DYNAMIC_DNS",
    );
    c.need(entry.addresses.is_empty(), "addresses: none may be given with resolution DYNAMIC_DNS");
    c.need(entry.endpoints.is_empty(), "endpoints: none may be given with resolution DYNAMIC_DNS");
    c.each("ports", &entry.ports, |c, port| {
        let fits = matches!(
            Protocol::parse(&port.protocol),
            Protocol::Http | Protocol::Tls | Protocol::Grpc | Protocol::Http2
        );
        c.need(fits, "protocol must be HTTP, HTTP2, GRPC or TLS with resolution DYNAMIC_DNS");
    });
    let waypoint =
        config.meta.labels.get(USE_WAYPOINT).is_some_and(|v| !v.is_empty() && !v.eq_ignore_ascii_case("none"));
    c.need(
        entry.location() != Location::MeshInternal || !waypoint,
        "location MESH_INTERNAL with resolution DYNAMIC_DNS cannot use a waypoint",
    );
}
