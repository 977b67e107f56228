//! Services of the registry, independent of their source: ServiceEntries, Kubernetes Services, tests.
//!
//! The fields follow Istio's `model.Service` and its attributes. A `Service` is immutable; a change creates a new value.

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
    /// Parses a protocol name, ignoring case; unknown names are `Unsupported`.
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

    /// The name in Istio's spelling.
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

    /// Whether the protocol is HTTP/2 on the wire.
    #[must_use]
    pub const fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Grpc | Self::GrpcWeb)
    }

    /// Whether the protocol is HTTP of any version, unencrypted.
    #[must_use]
    pub const fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Http2 | Self::HttpProxy | Self::Grpc | Self::GrpcWeb)
    }

    /// Whether the port is routed as a TCP byte stream.
    #[must_use]
    pub const fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp | Self::Https | Self::Tls | Self::Mongo | Self::Redis | Self::Mysql)
    }

    /// Whether the application encrypts the traffic itself.
    #[must_use]
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::Tls)
    }

    /// Whether the protocol is a form of gRPC.
    #[must_use]
    pub const fn is_grpc(self) -> bool {
        matches!(self, Self::Grpc | Self::GrpcWeb)
    }

    /// Whether no protocol is declared, so that Envoy has to sniff it.
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
    /// Service port number, as clients use it.
    pub port: u32,
    /// Declared protocol; `Unsupported` without one.
    pub protocol: Protocol,
}

/// The resolution of a service's endpoints (Istio's `Resolution`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize)]
pub enum Resolution {
    /// The registry provides the endpoints: EDS.
    #[default]
    ClientSideLB,
    /// Envoy resolves all addresses by DNS: `STRICT_DNS`.
    DnsLB,
    /// Envoy resolves one address at a time by DNS: `LOGICAL_DNS`.
    DnsRoundRobinLB,
    /// The original destination address of the client: `ORIGINAL_DST`.
    Passthrough,
    /// An ExternalName service: an alias of another service.
    Alias,
    /// Envoy resolves the host of each request on demand.
    DynamicDns,
}

/// The type of the registry that a service comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord, serde::Serialize)]
pub enum Registry {
    /// Kubernetes Services.
    Kubernetes,
    /// ServiceEntries, of any source.
    External,
    /// In-memory registry of tests.
    Mock,
    /// Unknown, in values that no registry built.
    #[default]
    None,
}

/// One entry of `exportTo`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub enum Visibility {
    /// `.`: the object's own namespace.
    Private,
    /// `*`: all namespaces.
    Public,
    /// `~`: no namespace.
    None,
    /// One namespace by name.
    Namespace(Arc<str>),
}

impl Visibility {
    /// Parses one `exportTo` entry.
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

/// The address that means "no address".
pub const UNSPECIFIED_IP: &str = "0.0.0.0";

/// A service of the mesh.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, serde::Serialize)]
pub struct Service {
    /// Fully qualified host name; may be a wildcard.
    pub hostname: Hostname,
    /// Namespace of the underlying object.
    pub namespace: Arc<str>,
    /// `destination.service.name`: the Service's name; for a ServiceEntry its host.
    pub name: Arc<str>,
    /// Name of the underlying object (for a ServiceEntry its own name).
    pub object_name: Arc<str>,
    /// Ports in declared order.
    pub ports: Vec<Port>,
    /// Service account URIs given by the object (`subjectAltNames`, annotations).
    pub service_accounts: Vec<String>,
    /// Creation time of the object; breaks ties everywhere.
    pub creation_time: Timestamp,
    /// Default address: an IP, a CIDR, or `0.0.0.0`.
    pub default_address: String,
    /// All virtual IPs, by cluster id.
    pub cluster_vips: BTreeMap<Arc<str>, Vec<String>>,
    /// Auto-allocated IPv4 address; `None` without allocation.
    pub auto_allocated_v4: Option<String>,
    /// Auto-allocated IPv6 address; `None` without allocation.
    pub auto_allocated_v6: Option<String>,
    /// Resolution of the endpoints.
    pub resolution: Resolution,
    /// Whether the service is outside of the mesh: no mutual TLS, no sidecar on the server side.
    pub mesh_external: bool,
    /// Type of the registry that provides the service.
    pub registry: Registry,
    /// Labels of the underlying object.
    pub labels: Labels,
    /// Selector of the workloads.
    pub label_selectors: Labels,
    /// `exportTo`; empty for the mesh's default.
    pub export_to: BTreeSet<Visibility>,
    /// ExternalName services that are aliases of this one: `(host, namespace)`.
    pub aliases: Vec<(Hostname, Arc<str>)>,
    /// External addresses (load balancer, external IPs), by cluster id.
    pub cluster_external_addresses: BTreeMap<Arc<str>, Vec<String>>,
    /// Node ports by service port, by cluster id.
    pub cluster_external_ports: BTreeMap<Arc<str>, BTreeMap<u32, u32>>,
    /// By cluster id: the network that the Service's labels make it a gateway of, and the service port for cross-network
    /// traffic; no port where the Service lacks it.
    pub cluster_gateway_of: BTreeMap<Arc<str>, (Arc<str>, Option<u32>)>,
    /// Target ports by service port, for passthrough services with a target port.
    pub passthrough_target_ports: BTreeMap<u32, u32>,
    /// `spec.type` of a Kubernetes Service.
    pub service_type: String,
    /// `spec.externalName`.
    pub external_name: String,
    /// Whether `internalTrafficPolicy` is `Local`.
    pub node_local: bool,
    /// Whether not-ready endpoints are published.
    pub publish_not_ready_addresses: bool,
    /// `trafficDistribution` (or its annotation): empty, `PreferSameZone` (also for `PreferClose`) or `PreferSameNode`.
    pub traffic_distribution: String,
    /// Whether Envoy races the DNS addresses and takes the first TCP connection (`istio.io/connect-strategy:
    /// RACE_FIRST_TCP_CONNECT`).
    pub race_first_connection: bool,
    /// Hash of all other fields: equal stamps mean equal services.
    pub stamp: u64,
}

impl Service {
    /// Whether the service is headless or its clients choose the address.
    #[must_use]
    pub fn is_passthrough(&self) -> bool {
        self.resolution == Resolution::Passthrough
    }

    /// Whether the service represents an InferencePool: one cluster, at its first port, with the endpoints of all its ports.
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

    /// Computes [`Service::stamp`] from the other fields; call it once, when the value is complete.
    #[must_use]
    pub fn stamped(mut self) -> Self {
        self.stamp = 0;
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        self.hash(&mut hasher);
        self.stamp = hasher.finish().max(1);
        self
    }
}

/// A service port that a workload serves, from the view of that workload.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceTarget {
    /// The service with the port.
    pub service: Arc<Service>,
    /// The service port.
    pub port: Port,
    /// The port that the workload listens on.
    pub target_port: u32,
}
