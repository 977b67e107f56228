//! Names and small values that several generators share: cluster names, addresses, config paths.

use std::net::IpAddr;

use crate::{
    model::{Kind, Meta},
    proto::{envoy::config::core::v3 as core, wkt},
};

/// Key of Istio's own metadata on routes, clusters and endpoints.
pub const ISTIO_METADATA: &str = "istio";

/// Traffic direction in a cluster name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the workload itself.
    Inbound,
    /// To other services.
    Outbound,
}

/// `outbound|80|v1|host` (Istio's `BuildSubsetKey`).
#[must_use]
pub fn subset_key(direction: Direction, subset: &str, host: &str, port: u32) -> String {
    let direction = match direction {
        Direction::Inbound => "inbound",
        Direction::Outbound => "outbound",
    };
    format!("{direction}|{port}|{subset}|{host}")
}

/// `inbound|8080||` (Istio's `BuildInboundSubsetKey`).
#[must_use]
pub fn inbound_subset_key(port: u32) -> String {
    subset_key(Direction::Inbound, "", "", port)
}

/// `outbound_.80_.v1_.host` (Istio's `BuildDNSSrvSubsetKey`): a cluster name that is a legal SNI.
#[must_use]
pub fn dns_srv_subset_key(subset: &str, host: &str, port: u32) -> String {
    format!("outbound_.{port}_.{subset}_.{host}")
}

/// The parts of a cluster name: direction, subset, host, port (Istio's `ParseSubsetKey`).
#[must_use]
pub fn parse_subset_key(name: &str) -> Option<(&str, &str, &str, u32)> {
    let (separator, rest) = if name.contains("_.") && !name.contains('|') { ("_.", name) } else { ("|", name) };
    let mut parts = rest.splitn(4, separator);
    let direction = parts.next()?;
    let port = parts.next()?.parse().ok()?;
    let subset = parts.next()?;
    let host = parts.next()?;
    Some((direction, subset, host, port))
}

/// An address with or without `/bits`, host bits kept (Istio's `AddrStrToPrefix`).
#[must_use]
pub fn parse_prefix(text: &str) -> Option<(IpAddr, u8)> {
    match text.split_once('/') {
        Some((ip, bits)) => {
            let (ip, bits): (IpAddr, u8) = (ip.parse().ok()?, bits.parse().ok()?);
            (bits <= if ip.is_ipv4() { 32 } else { 128 }).then_some((ip, bits))
        }
        None => text.parse().ok().map(|ip: IpAddr| (ip, if ip.is_ipv4() { 32 } else { 128 })),
    }
}

/// An address or CIDR as Envoy writes ranges; `None` when it is neither.
#[must_use]
pub fn cidr_range(text: &str) -> Option<core::CidrRange> {
    let (ip, bits) = parse_prefix(text)?;
    Some(core::CidrRange { address_prefix: ip.to_string(), prefix_len: Some(u32::from(bits)) })
}

/// A socket address; port 0 makes it a pipe, whose path may be written with `unix://` (Istio's `BuildAddress`).
#[must_use]
pub fn address(ip: &str, port: u32) -> core::Address {
    if port == 0 {
        let path = ip.strip_prefix("unix://").unwrap_or(ip).to_string();
        return core::Address { address: Some(core::address::Address::Pipe(core::Pipe { path, mode: 0 })) };
    }
    core::Address {
        address: Some(core::address::Address::SocketAddress(core::SocketAddress {
            address: ip.to_string(),
            port_specifier: Some(core::socket_address::PortSpecifier::PortValue(port)),
            ..Default::default()
        })),
    }
}

/// `/apis/GROUP/VERSION/namespaces/NAMESPACE/KIND/NAME` with the kind in kebab case: the value of Istio's metadata `config`.
#[must_use]
pub fn config_path(meta: &Meta, kind: Kind) -> String {
    let mut kebab = String::new();
    for c in kind.as_str().chars() {
        if c.is_ascii_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.push(c.to_ascii_lowercase());
    }
    let version = kind.versions().first().copied().unwrap_or_default();
    format!("/apis/{}/{version}/namespaces/{}/{kebab}/{}", kind.group(), meta.namespace, meta.name)
}

/// Metadata with the object that a resource was made from (Istio's `BuildConfigInfoMetadata`).
#[must_use]
pub fn config_metadata(meta: &Meta, kind: Kind) -> core::Metadata {
    let value = wkt::Value { kind: Some(wkt::value::Kind::StringValue(config_path(meta, kind))) };
    let istio = wkt::Struct { fields: [("config".to_string(), value)].into() };
    core::Metadata { filter_metadata: [(ISTIO_METADATA.to_string(), istio)].into(), ..Default::default() }
}

/// `host:port`, an IPv6 address in brackets (Istio's `DomainName`).
#[must_use]
pub fn host_port(host: &str, port: u32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
