//! The node message by which a connecting proxy describes itself.
//!
//! Parsing follows Istio's `ParseServiceNodeWithMetadata`: the id is `type~ip~id~domain`, metadata is one JSON object.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use serde_json::Value;

use super::{Labels, Locality};
use crate::proto::envoy::config::core::v3 as core;

/// The type of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeType {
    /// Sidecar of a workload.
    Sidecar,
    /// Gateway at the edge of the mesh or of a network.
    Router,
    /// Ambient waypoint.
    Waypoint,
    /// Ambient node proxy.
    Ztunnel,
    /// A proxy of another make that reads other resources; it has no Gateways and no services here.
    Agentgateway,
}

/// The interception mode of a sidecar (`INTERCEPTION_MODE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum InterceptionMode {
    /// Redirected by iptables REDIRECT.
    #[default]
    Redirect,
    /// Redirected by iptables TPROXY.
    Tproxy,
    /// No interception: listeners bind to their ports.
    None,
}

/// The reason a node is refused (`InvalidArgument`).
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NodeError(pub String);

/// Metadata keys that affect generation. All other keys stay in [`Node::raw_metadata`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, serde::Serialize)]
#[allow(missing_docs, reason = "each field is the metadata key of that name in upper case")]
pub struct NodeMetadata {
    pub istio_version: Arc<str>,
    /// Major and minor version of Envoy, as the node message tells it beside the metadata.
    pub envoy_version: Option<(u32, u32)>,
    pub generator: Arc<str>,
    pub interception_mode: InterceptionMode,
    pub http10: bool,
    pub dns_capture: bool,
    pub dns_auto_allocate: bool,
    pub enable_hbone: bool,
    pub unprivileged_pod: bool,
    pub idle_timeout: Arc<str>,
    pub requested_network_view: Vec<Arc<str>>,
    pub tls_client_cert_chain: Arc<str>,
    pub tls_client_key: Arc<str>,
    pub tls_client_root_cert: Arc<str>,
    pub tls_server_cert_chain: Arc<str>,
    pub tls_server_key: Arc<str>,
    pub tls_server_root_cert: Arc<str>,
    pub envoy_status_port: u32,
    pub envoy_prometheus_port: u32,
    pub mesh_id: Arc<str>,
    /// `PROXY_CONFIG` as canonical JSON text; empty when absent.
    pub proxy_config: Arc<str>,
    /// `SERVICE_ACCOUNT`.
    pub service_account: Arc<str>,
    pub node_name: Arc<str>,
    pub workload_name: Arc<str>,
    /// `POD_PORTS` as JSON text.
    pub pod_ports: Arc<str>,
    /// Other keys that generators read ([`NodeMetadata::OTHER_KEYS`]), as text by key.
    pub other: BTreeMap<String, String>,
}

impl NodeMetadata {
    /// Keys stored in [`NodeMetadata::other`].
    pub const OTHER_KEYS: &'static [&'static str] = &[
        "DNS_PROXY_ADDR",
        "ENABLE_SELF_DISCOVERY",
        "ENVOY_SECURE_MERGED_METRICS_PORT",
        "ENVOY_SECURE_METRICS_PORT",
        "HTTP_PROXY_PORT",
        "INBOUND_LISTENER_EXACT_BALANCE",
        "NAMESPACE",
        "OUTBOUND_LISTENER_EXACT_BALANCE",
        "PILOTHOUSE_NATIVE",
        "PILOTHOUSE_SYSTEM_CA_FILE",
        "WORKLOAD_IDENTITY_SOCKET_FILE",
        "credential",
        "file-credential",
    ];

    /// The value of a key in [`NodeMetadata::OTHER_KEYS`] as text; empty when absent.
    #[must_use]
    pub fn other(&self, key: &str) -> &str {
        self.other.get(key).map_or("", String::as_str)
    }

    /// Whether the proxy asks for the endpoints of its own workload, by which Envoy balances by zones.
    #[must_use]
    pub fn finds_itself(&self) -> bool {
        self.other("ENABLE_SELF_DISCOVERY") == "true"
    }
}

/// A connected proxy, parsed from its node message.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Node id as received.
    pub raw_id: Arc<str>,
    /// First part of the id: type of the proxy.
    pub node_type: NodeType,
    /// Third part of the id, normally `pod.namespace`.
    pub id: Arc<str>,
    /// IPs: metadata `INSTANCE_IPS` if all of them are valid, else the second part of the id.
    pub ips: Vec<Arc<str>>,
    /// Fourth part of the id, normally `ns.svc.cluster.local`.
    pub dns_domain: Arc<str>,
    /// Config namespace: metadata `NAMESPACE`, else the first label of the domain.
    pub namespace: Arc<str>,
    /// Labels: metadata `LABELS`, later replaced by the registry's labels for the IP.
    pub labels: Labels,
    /// Locality as received from Envoy.
    pub locality: Locality,
    /// Metadata `CLUSTER_ID`.
    pub cluster_id: Arc<str>,
    /// Metadata `NETWORK`.
    pub network: Arc<str>,
    /// Typed form of the metadata keys that affect generation.
    pub metadata: NodeMetadata,
    /// Cluster of the node message: the name of the service, as Envoy is started with it.
    pub service_cluster: Arc<str>,
    /// All metadata as received.
    pub raw_metadata: Value,
}

impl Node {
    /// Parses the node of a first request.
    ///
    /// # Errors
    /// [`NodeError`] for an id without four parts, an unknown type, no valid IP, or metadata of a wrong type.
    pub fn parse(node: &core::Node) -> Result<Self, NodeError> {
        let metadata = node.metadata.as_ref().map_or(Value::Null, crate::proto::struct_to_json);
        let locality = node.locality.as_ref().map_or_else(Locality::default, |l| Locality {
            region: l.region.as_str().into(),
            zone: l.zone.as_str().into(),
            subzone: l.sub_zone.as_str().into(),
        });
        let mut parsed = Self::from_parts(&node.id, metadata, locality)?;
        parsed.service_cluster = node.cluster.as_str().into();
        parsed.metadata.envoy_version = envoy_version(node);
        Ok(parsed)
    }

    /// Parses a node from its id and its metadata as JSON.
    ///
    /// # Errors
    /// As [`Node::parse`].
    pub fn from_parts(id: &str, metadata: Value, locality: Locality) -> Result<Self, NodeError> {
        let parts: Vec<&str> = id.split('~').collect();
        let [node_type, ip, name, domain] = parts.as_slice() else {
            return Err(NodeError(format!("missing parts in the service node {id:?}: want type~ip~id~domain")));
        };
        let node_type = match *node_type {
            "sidecar" => NodeType::Sidecar,
            "router" => NodeType::Router,
            "waypoint" => NodeType::Waypoint,
            "ztunnel" => NodeType::Ztunnel,
            "agentgateway" => NodeType::Agentgateway,
            other => return Err(NodeError(format!("invalid node type {other:?} in {id:?}"))),
        };
        let text = |key: &str| -> Arc<str> {
            match &metadata[key] {
                Value::String(s) => s.as_str().into(),
                Value::Null => "".into(),
                other => other.to_string().into(),
            }
        };
        let flag = |key: &str| matches!(&*text(key), "true" | "1" | "TRUE" | "True" | "t" | "T");
        let number = |key: &str| text(key).parse::<f64>().map_or(0, |n| n as u32);
        let listed = addresses(&text("INSTANCE_IPS"));
        let ips = listed
            .or_else(|| addresses(ip))
            .ok_or_else(|| NodeError(format!("no valid IP address in the service node {id:?} or its INSTANCE_IPS")))?;
        let namespace = match text("NAMESPACE") {
            n if n.is_empty() => domain.split('.').next().unwrap_or_default().into(),
            n => n,
        };
        let labels_of = |key: &str| -> Result<Labels, NodeError> {
            match &metadata[key] {
                Value::Null => Ok(Labels::new()),
                Value::Object(map) => {
                    Ok(map.iter().filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_string()))).collect())
                }
                other => Err(NodeError(format!("node metadata {key} is not an object: {other}"))),
            }
        };
        let mut labels = labels_of("STATIC_LABELS")?;
        labels.extend(labels_of("LABELS")?);
        let json_text = |key: &str| -> Arc<str> {
            if metadata[key].is_null() { "".into() } else { metadata[key].to_string().into() }
        };
        Ok(Self {
            raw_id: id.into(),
            node_type,
            id: (*name).into(),
            ips,
            dns_domain: (*domain).into(),
            namespace,
            labels,
            locality,
            cluster_id: text("CLUSTER_ID"),
            network: text("NETWORK"),
            service_cluster: Arc::default(),
            metadata: NodeMetadata {
                istio_version: text("ISTIO_VERSION"),
                envoy_version: None,
                generator: text("GENERATOR"),
                interception_mode: match &*text("INTERCEPTION_MODE") {
                    "TPROXY" => InterceptionMode::Tproxy,
                    "NONE" => InterceptionMode::None,
                    _ => InterceptionMode::Redirect,
                },
                http10: &*text("HTTP10") == "1",
                dns_capture: flag("DNS_CAPTURE"),
                dns_auto_allocate: flag("DNS_AUTO_ALLOCATE"),
                enable_hbone: flag("ENABLE_HBONE"),
                unprivileged_pod: flag("UNPRIVILEGED_POD"),
                idle_timeout: text("IDLE_TIMEOUT"),
                requested_network_view: text("REQUESTED_NETWORK_VIEW")
                    .split(',')
                    .filter(|n| !n.is_empty())
                    .map(Arc::from)
                    .collect(),
                tls_client_cert_chain: text("TLS_CLIENT_CERT_CHAIN"),
                tls_client_key: text("TLS_CLIENT_KEY"),
                tls_client_root_cert: text("TLS_CLIENT_ROOT_CERT"),
                tls_server_cert_chain: text("TLS_SERVER_CERT_CHAIN"),
                tls_server_key: text("TLS_SERVER_KEY"),
                tls_server_root_cert: text("TLS_SERVER_ROOT_CERT"),
                envoy_status_port: number("ENVOY_STATUS_PORT"),
                envoy_prometheus_port: number("ENVOY_PROMETHEUS_PORT"),
                mesh_id: text("MESH_ID"),
                proxy_config: json_text("PROXY_CONFIG"),
                service_account: text("SERVICE_ACCOUNT"),
                node_name: text("NODE_NAME"),
                workload_name: text("WORKLOAD_NAME"),
                // Istio's agent writes the list as text; a JSON list is accepted too.
                pod_ports: match metadata["POD_PORTS"].as_str() {
                    Some(text) => text.into(),
                    None => json_text("POD_PORTS"),
                },
                other: NodeMetadata::OTHER_KEYS
                    .iter()
                    .map(|key| ((*key).to_string(), text(key).to_string()))
                    .filter(|(_, value)| !value.is_empty())
                    .collect(),
            },
            raw_metadata: metadata,
        })
    }
}

/// The version of Envoy's own build.
fn envoy_version(node: &core::Node) -> Option<(u32, u32)> {
    match node.user_agent_version_type.as_ref()? {
        core::node::UserAgentVersionType::UserAgentBuildVersion(build) => {
            build.version.as_ref().map(|version| (version.major_number, version.minor_number))
        }
        core::node::UserAgentVersionType::UserAgentVersion(_) => None,
    }
}

/// The addresses of a list; `None` where one of them is none.
fn addresses(list: &str) -> Option<Vec<Arc<str>>> {
    list.split(',').map(str::trim).map(|ip| ip.parse::<IpAddr>().ok().map(|_| ip.into())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(id: &str, metadata: Value) -> Result<Node, NodeError> {
        Node::from_parts(id, metadata, Locality::default())
    }

    #[test]
    fn http10_is_asked_for_by_1_alone() {
        let of = |value: Value| node("sidecar~1.1.1.1~a.b~b.svc", json!({"HTTP10": value})).unwrap().metadata.http10;
        assert!(of(json!("1")));
        assert_eq!([json!("true"), json!("0"), json!("yes"), json!(""), Value::Null].map(of), [false; 5]);
    }

    #[test]
    fn addresses_of_the_metadata_count_when_all_are_valid_else_the_id_s_does() {
        let of = |id: &str, ips: &str| {
            let node = node(&format!("sidecar~{id}~a.b~b.svc"), json!({"INSTANCE_IPS": ips}));
            node.map(|n| n.ips.join(" ")).map_err(|e| e.to_string())
        };
        assert_eq!(of("1.1.1.1", "2.2.2.2,::3").unwrap(), "2.2.2.2 ::3");
        assert_eq!(of("1.1.1.1", "2.2.2.2,gone").unwrap(), "1.1.1.1");
        assert_eq!(of("1.1.1.1", "2.2.2.2,").unwrap(), "1.1.1.1");
        assert_eq!(of("1.1.1.1", "").unwrap(), "1.1.1.1");
        assert_eq!(of("", "2.2.2.2").unwrap(), "2.2.2.2");
        assert!(of("x", "y").unwrap_err().contains("no valid IP address"));
    }

    #[test]
    fn all_types_of_istio_are_known() {
        let of = |name: &str| node(&format!("{name}~1.1.1.1~a.b~b.svc"), Value::Null).map(|n| n.node_type);
        for name in ["sidecar", "router", "waypoint", "ztunnel", "agentgateway"] {
            assert_eq!(serde_json::to_value(of(name).unwrap()).unwrap(), name);
        }
        assert!(of("ingress").is_err());
    }

    #[test]
    fn ports_of_a_pod_are_text_or_a_list() {
        let list = json!([{"name": "web", "containerPort": 8080}]);
        let of = |ports: Value| {
            let node = Node::from_parts("sidecar~1.1.1.1~a.b~b.svc", json!({"POD_PORTS": ports}), Locality::default())
                .unwrap();
            serde_json::from_str::<Value>(&node.metadata.pod_ports).unwrap()
        };
        assert_eq!(of(json!(list.to_string())), list);
        assert_eq!(of(list.clone()), list);
    }
}
