//! Services of the registry, whatever they came from: ServiceEntries, Kubernetes Services, tests.
//!
//! The fields follow Istio's `model.Service` and its attributes. A `Service` is immutable; a changed one is a new value.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
    sync::Arc,
};

use super::{Hostname, Labels, Timestamp};

/// The protocol of a service port (Istio's `protocol.Instance`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, serde::Serialize)]
#[allow(missing_docs, reason = "the protocols of that name")]
pub enum Protocol {
    Grpc,
    GrpcWeb,
    Http,
    HttpProxy,
    Http2,
    Https,
    Tcp,
    Tls,
    Udp,
    Mongo,
    Redis,
    Mysql,
    Hbone,
    DoubleHbone,
    /// Unknown or not given: sniffed where Istio sniffs.
    #[default]
    Unsupported,
}

impl Protocol {
    /// Reads a protocol name, in any case; `Unsupported` for what is not known.
    #[must_use]
    pub fn parse(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "tcp" => Self::Tcp,
            "udp" => Self::Udp,
            "grpc" => Self::Grpc,
            "grpc-web" => Self::GrpcWeb,
            "http" => Self::Http,
            "http_proxy" => Self::HttpProxy,
            "http2" => Self::Http2,
            "https" => Self::Https,
            "tls" => Self::Tls,
            "mongo" => Self::Mongo,
            "redis" => Self::Redis,
            "mysql" => Self::Mysql,
            "hbone" => Self::Hbone,
            "double-hbone" => Self::DoubleHbone,
            _ => Self::Unsupported,
        }
    }

    /// The name as Istio prints it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "GRPC",
            Self::GrpcWeb => "GRPC-Web",
            Self::Http => "HTTP",
            Self::HttpProxy => "HTTP_PROXY",
            Self::Http2 => "HTTP2",
            Self::Https => "HTTPS",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Udp => "UDP",
            Self::Mongo => "Mongo",
            Self::Redis => "Redis",
            Self::Mysql => "MySQL",
            Self::Hbone => "HBONE",
            Self::DoubleHbone => "DoubleHBONE",
            Self::Unsupported => "UnsupportedProtocol",
        }
    }

    /// HTTP/2 on the wire.
    #[must_use]
    pub const fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Grpc | Self::GrpcWeb)
    }

    /// HTTP of any version, not encrypted.
    #[must_use]
    pub const fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Http2 | Self::HttpProxy | Self::Grpc | Self::GrpcWeb)
    }

    /// Routed as a stream of bytes.
    #[must_use]
    pub const fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp | Self::Https | Self::Tls | Self::Mongo | Self::Redis | Self::Mysql)
    }

    /// Encrypted by the application.
    #[must_use]
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::Tls)
    }

    /// gRPC of any form.
    #[must_use]
    pub const fn is_grpc(self) -> bool {
        matches!(self, Self::Grpc | Self::GrpcWeb)
    }

    /// Not declared, so Envoy has to find out.
    #[must_use]
    pub const fn is_unsupported(self) -> bool {
        matches!(self, Self::Unsupported)
    }
}

/// A port of a service.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, serde::Serialize)]
pub struct Port {
    /// Port name, unique inside the service.
    pub name: Arc<str>,
    /// Port number that clients use.
    pub port: u32,
    /// Declared protocol.
    pub protocol: Protocol,
}

/// How the addresses of a service are found (Istio's `Resolution`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize)]
pub enum Resolution {
    /// The registry knows the endpoints: EDS.
    #[default]
    ClientSideLB,
    /// Envoy asks DNS for all endpoints: `STRICT_DNS`.
    DnsLB,
    /// Envoy asks DNS, one address at a time: `LOGICAL_DNS`.
    DnsRoundRobinLB,
    /// The address that the client dialled: `ORIGINAL_DST`.
    Passthrough,
    /// An ExternalName service: another name for a service.
    Alias,
    /// The host of the request is resolved on demand.
    DynamicDns,
}

/// Which registry a service comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord, serde::Serialize)]
pub enum Registry {
    /// A Kubernetes Service.
    Kubernetes,
    /// A ServiceEntry.
    External,
    /// A test's in-memory registry.
    Mock,
    /// Not said.
    #[default]
    None,
}

/// One entry of `exportTo`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub enum Visibility {
    /// `.`
    Private,
    /// `*`
    Public,
    /// `~`
    None,
    /// A namespace by name.
    Namespace(Arc<str>),
}

impl Visibility {
    /// Reads one `exportTo` entry.
    #[must_use]
    pub fn parse(entry: &str) -> Self {
        match entry {
            "." => Self::Private,
            "*" => Self::Public,
            "~" => Self::None,
            name => Self::Namespace(name.into()),
        }
    }
}

/// The address that stands for "none".
pub const UNSPECIFIED_IP: &str = "0.0.0.0";

/// A service of the mesh.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, serde::Serialize)]
pub struct Service {
    /// Fully qualified host name; may be a wildcard.
    pub hostname: Hostname,
    /// Namespace of the object behind it.
    pub namespace: Arc<str>,
    /// `destination.service.name`: the Service's name; for a ServiceEntry its host.
    pub name: Arc<str>,
    /// Name of the object behind it (a ServiceEntry's own name).
    pub object_name: Arc<str>,
    /// Ports in declared order.
    pub ports: Vec<Port>,
    /// Service account URIs from the object (`subjectAltNames`, annotations).
    pub service_accounts: Vec<String>,
    /// When the object was created; the tie-breaker everywhere.
    pub creation_time: Timestamp,
    /// Address by default: an IP, a CIDR, or `0.0.0.0`.
    pub default_address: String,
    /// All virtual IPs by cluster id.
    pub cluster_vips: BTreeMap<Arc<str>, Vec<String>>,
    /// Auto-allocated IPv4 address.
    pub auto_allocated_v4: Option<String>,
    /// Auto-allocated IPv6 address.
    pub auto_allocated_v6: Option<String>,
    /// How endpoints are found.
    pub resolution: Resolution,
    /// Outside of the mesh: no mutual TLS, no sidecar on the other side.
    pub mesh_external: bool,
    /// Where it comes from.
    pub registry: Registry,
    /// Labels of the object.
    pub labels: Labels,
    /// Labels that select workloads.
    pub label_selectors: Labels,
    /// `exportTo`; empty means the mesh's default.
    pub export_to: BTreeSet<Visibility>,
    /// Other services that are names for this one (ExternalName): `(host, namespace)`.
    pub aliases: Vec<(Hostname, Arc<str>)>,
    /// External addresses by cluster id (load balancer, external IPs).
    pub cluster_external_addresses: BTreeMap<Arc<str>, Vec<String>>,
    /// Service port to node port, by cluster id.
    pub cluster_external_ports: BTreeMap<Arc<str>, BTreeMap<u32, u32>>,
    /// The network that the Service of each cluster is labelled as a gateway of, and the service port for it; no port where
    /// the Service does not have that port.
    pub cluster_gateway_of: BTreeMap<Arc<str>, (Arc<str>, Option<u32>)>,
    /// Service port to target port, for passthrough services with a target port.
    pub passthrough_target_ports: BTreeMap<u32, u32>,
    /// `spec.type` of a Kubernetes Service.
    pub service_type: String,
    /// `spec.externalName`.
    pub external_name: String,
    /// `internalTrafficPolicy: Local`.
    pub node_local: bool,
    /// Not-ready endpoints are published too.
    pub publish_not_ready_addresses: bool,
    /// `trafficDistribution` (or its annotation): empty, `PreferSameZone` (also for `PreferClose`) or `PreferSameNode`.
    pub traffic_distribution: String,
    /// DNS addresses are raced: the first TCP connection wins (`istio.io/connect-strategy: RACE_FIRST_TCP_CONNECT`).
    pub race_first_connection: bool,
    /// Hash of everything above: equal stamps mean equal services.
    pub stamp: u64,
}

impl Service {
    /// A headless service or one whose address the client picks.
    #[must_use]
    pub fn is_passthrough(&self) -> bool {
        self.resolution == Resolution::Passthrough
    }

    /// Whether this stands for an InferencePool: one cluster, at its first port, with the endpoints of all its ports.
    #[must_use]
    pub fn is_inference_pool(&self) -> bool {
        self.labels.get("internal.istio.io/service-semantics").is_some_and(|semantics| semantics == "inferencepool")
    }

    /// The port with this number.
    #[must_use]
    pub fn port_by_number(&self, number: u32) -> Option<&Port> {
        self.ports.iter().find(|p| p.port == number)
    }

    /// The port with this name.
    #[must_use]
    pub fn port_by_name(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|p| &*p.name == name)
    }

    /// Key of the service: `(host, namespace)`.
    #[must_use]
    pub fn key(&self) -> (Hostname, Arc<str>) {
        (self.hostname.clone(), self.namespace.clone())
    }

    /// Fills in [`Service::stamp`] from the other fields. Call it once, when the value is complete.
    #[must_use]
    pub fn stamped(mut self) -> Self {
        self.stamp = 0;
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        self.hash(&mut hasher);
        self.stamp = hasher.finish().max(1);
        self
    }
}

/// A service port that a workload itself serves, as seen from that workload.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceTarget {
    /// The service.
    pub service: Arc<Service>,
    /// The service's port.
    pub port: Port,
    /// The port that the workload listens on.
    pub target_port: u32,
}
