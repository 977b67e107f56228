//! A proxy that starts: its settings, its node, its addresses and names.

use serde_json::{Value, json};

use crate::{
    model::Node,
    proto::mesh::{
        ProxyConfig,
        proxy_config::{ClusterName, TracingServiceName},
    },
};

/// The cluster of Envoy's own admin interface.
pub(super) const ADMIN_CLUSTER: &str = "prometheus_stats";
/// Istio's default name of a service cluster, which stands for none.
const NO_NAME: &str = "istio-proxy";
/// Prefix of environment variables that are metadata of the node.
pub(super) const METADATA_PREFIX: &str = "ISTIO_META_";

/// A proxy that starts with settings of the mesh.
#[derive(Debug)]
pub struct Proxy<'a> {
    /// Its settings.
    pub settings: &'a ProxyConfig,
    /// Its node.
    pub node: &'a Node,
    /// Its service cluster.
    pub cluster: &'a str,
}

impl Proxy<'_> {
    /// Whether the proxy has IPv6 addresses only.
    pub(super) fn is_ipv6(&self) -> bool {
        !self.node.ips.is_empty() && self.node.ips.iter().all(|ip| ip.contains(':'))
    }

    /// The address of the machine itself.
    pub(super) fn localhost(&self) -> &'static str {
        if self.is_ipv6() { "::1" } else { "127.0.0.1" }
    }

    /// The address of all interfaces.
    pub(super) fn wildcard(&self) -> &'static str {
        if self.is_ipv6() { "::" } else { "0.0.0.0" }
    }

    /// The addresses that names are resolved to.
    pub(super) fn dns_family(&self) -> &'static str {
        if self.is_ipv6() { "V6_ONLY" } else { "V4_ONLY" }
    }
}

/// An address of TCP.
pub(super) fn address(host: &str, port: impl Into<Value>) -> Value {
    json!({"socket_address": {"address": host, "port_value": port.into()}})
}

/// Options of a cluster that speaks HTTP/2.
pub(super) fn http2() -> Value {
    json!({"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }})
}

/// The service cluster of a node (Istio's `getServiceCluster`): the setting's name, else `app.namespace`, else that of the
/// workload, else the node's.
pub(super) fn service_cluster(settings: Option<&ProxyConfig>, node: &Node) -> String {
    let namespace = &node.namespace;
    let workload = &*node.metadata.workload_name;
    let default = || match node.labels.get("app") {
        Some(app) => format!("{app}.{namespace}"),
        None if workload.is_empty() => node.id.to_string(),
        None => format!("{workload}.{namespace}"),
    };
    let or_default = |name: &str| if name.is_empty() || name == NO_NAME { default() } else { name.to_string() };
    match settings.and_then(|settings| settings.cluster_name.as_ref()) {
        Some(ClusterName::ServiceCluster(name)) => or_default(name),
        Some(ClusterName::TracingServiceName(kind)) => {
            let keys = ["service.istio.io/canonical-name", "app.kubernetes.io/name", "app"];
            let written = keys.iter().find_map(|key| node.labels.get(*key)).map(String::as_str);
            let canonical = written.unwrap_or(if workload.is_empty() { NO_NAME } else { workload });
            match TracingServiceName::try_from(*kind).unwrap_or_default() {
                TracingServiceName::AppLabelAndNamespace => default(),
                TracingServiceName::CanonicalNameOnly => or_default(canonical),
                TracingServiceName::CanonicalNameAndNamespace => format!("{canonical}.{namespace}"),
            }
        }
        None => default(),
    }
}
