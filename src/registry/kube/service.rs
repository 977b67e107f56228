//! Converts a Kubernetes Service to a service (Istio's `kube.ConvertService`).

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{Service as ServiceObject, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use crate::{
    model::{
        Config, Labels, Port, Protocol, Registry, Resolution, Service, Visibility, labels::gateway_of,
        service::UNSPECIFIED_IP,
    },
    registry::env::{Env, traffic_distribution},
};

const CANONICAL_ACCOUNTS: &str = "alpha.istio.io/canonical-serviceaccounts";
const KUBERNETES_ACCOUNTS: &str = "alpha.istio.io/kubernetes-serviceaccounts";
const EXPORT_TO: &str = "networking.istio.io/exportTo";
/// Annotation that makes a NodePort Service a gateway on the Nodes with these labels.
const NODE_SELECTOR: &str = "traffic.istio.io/nodeSelector";

/// The target port of a service port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetPort {
    /// A port number.
    Number(u32),
    /// The name of a container port with the service port's protocol.
    Named(String),
}

/// A port of a Kubernetes Service with its target port.
#[derive(Debug, Clone, PartialEq)]
pub struct PortTarget {
    /// The service port.
    pub port: Port,
    /// The target port; `None` when the Service has none.
    pub target: Option<TargetPort>,
    /// `TCP`, `UDP`, `SCTP`.
    pub protocol: String,
}

/// The host name of a Kubernetes Service.
pub fn hostname(env: &Env, name: &str, namespace: &str) -> Arc<str> {
    format!("{name}.{namespace}.svc.{}", env.mesh.domain).into()
}

/// Converts a Service. `nodes` returns the external addresses of the Nodes that a selector matches.
pub fn convert(
    env: &Env,
    config: &Config,
    object: &ServiceObject,
    namespace: Option<&Labels>,
    nodes: impl Fn(&Labels) -> Vec<String>,
) -> Arc<Service> {
    let no_spec = ServiceSpec::default();
    let (meta, spec) = (&config.meta, object.spec.as_ref().unwrap_or(&no_spec));
    let cluster = env.cluster(&config.origin.cluster);
    let service_type = spec.type_.clone().unwrap_or_default();
    let external_name = match service_type.as_str() {
        "ExternalName" => spec.external_name.clone().unwrap_or_default(),
        _ => String::new(),
    };
    let (mut resolution, addresses) = addresses(spec);
    if !external_name.is_empty() && resolution != Resolution::Passthrough {
        resolution = Resolution::Alias;
    }
    let mut service = Service {
        hostname: hostname(env, &meta.name, &meta.namespace),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        object_name: meta.name.clone(),
        ports: ports(spec).map(port).collect(),
        service_accounts: accounts(env, &cluster, &meta.annotations, &meta.namespace),
        creation_time: meta.creation,
        default_address: addresses.first().cloned().unwrap_or_default(),
        cluster_vips: BTreeMap::from([(cluster.clone(), addresses)]),
        resolution,
        mesh_external: !external_name.is_empty(),
        registry: Registry::Kubernetes,
        labels: meta.labels.clone(),
        label_selectors: spec.selector.clone().unwrap_or_default(),
        export_to: list(&meta.annotations, EXPORT_TO).map(|e| Visibility::parse(e.trim())).collect(),
        service_type,
        external_name,
        node_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
        publish_not_ready_addresses: spec.publish_not_ready_addresses.unwrap_or_default(),
        traffic_distribution: traffic_distribution(spec.traffic_distribution.as_deref(), &meta.annotations, namespace),
        ..Service::default()
    };
    let external = external_addresses(object, spec);
    if !external.is_empty() {
        service.cluster_external_addresses.insert(cluster.clone(), external);
    }
    if let Some((network, port)) = gateway_of(&meta.labels) {
        let port = service.port_by_number(port).map(|p| p.port);
        service.cluster_gateway_of.insert(cluster.clone(), (network.into(), port));
    }
    if let Some(selector) = node_selector(config, object) {
        let ports = ports(spec).map(|p| (number(p.port), number(p.node_port.unwrap_or_default())));
        service.cluster_external_ports.insert(cluster.clone(), ports.collect());
        // The Service's own external addresses take precedence over those of the Nodes.
        service.cluster_external_addresses.entry(cluster).or_insert_with(|| nodes(&selector));
    }
    Arc::new(service.stamped())
}

/// The Node selector of a NodePort gateway Service; `None` for other Services.
pub fn node_selector(config: &Config, object: &ServiceObject) -> Option<Labels> {
    let node_port = object.spec.as_ref().and_then(|s| s.type_.as_deref()) == Some("NodePort");
    let written = config.meta.annotations.get(NODE_SELECTOR).filter(|_| node_port)?;
    Some(serde_json::from_str(written).unwrap_or_default())
}

/// The ports of a Service with their target ports.
pub fn port_targets(object: &ServiceObject) -> Vec<PortTarget> {
    let of = |p: &ServicePort| PortTarget {
        port: port(p),
        target: p.target_port.as_ref().map(|t| match t {
            IntOrString::Int(n) => TargetPort::Number(number(*n)),
            IntOrString::String(name) => TargetPort::Named(name.clone()),
        }),
        protocol: p.protocol.clone().unwrap_or_else(|| "TCP".to_string()),
    };
    object.spec.iter().flat_map(ports).map(of).collect()
}

/// The ports that an API server would take. In files there may be others, and port 0 would become a socket of the file system.
fn ports(spec: &ServiceSpec) -> impl Iterator<Item = &ServicePort> {
    spec.ports.iter().flatten().filter(|port| (1..=65_535).contains(&port.port))
}

fn number(n: i32) -> u32 {
    u32::try_from(n).unwrap_or_default()
}

fn list<'a>(annotations: &'a Labels, name: &str) -> impl Iterator<Item = &'a str> {
    annotations.get(name).filter(|v| !v.is_empty()).into_iter().flat_map(|v| v.split(','))
}

fn accounts(env: &Env, cluster: &str, annotations: &Labels, namespace: &str) -> Vec<String> {
    let canonical = list(annotations, CANONICAL_ACCOUNTS).map(str::to_string);
    canonical.chain(list(annotations, KUBERNETES_ACCOUNTS).map(|a| env.spiffe(cluster, namespace, a))).collect()
}

fn addresses(spec: &ServiceSpec) -> (Resolution, Vec<String>) {
    match spec.cluster_ip.as_deref().unwrap_or_default() {
        "None" => (Resolution::Passthrough, vec![UNSPECIFIED_IP.to_string()]),
        "" => (Resolution::ClientSideLB, vec![UNSPECIFIED_IP.to_string()]),
        ip => match &spec.cluster_ips {
            Some(ips) if ips.len() > 1 => (Resolution::ClientSideLB, ips.clone()),
            _ => (Resolution::ClientSideLB, vec![ip.to_string()]),
        },
    }
}

fn external_addresses(object: &ServiceObject, spec: &ServiceSpec) -> Vec<String> {
    let mut out = Vec::new();
    if spec.type_.as_deref() == Some("LoadBalancer") {
        let status = object.status.as_ref().and_then(|s| s.load_balancer.as_ref());
        for ingress in status.iter().flat_map(|l| l.ingress.iter().flatten()) {
            let address = ingress.ip.clone().filter(|i| !i.is_empty()).or_else(|| ingress.hostname.clone());
            out.extend(address.filter(|a| !a.is_empty()));
        }
    }
    out.extend(spec.external_ips.iter().flatten().cloned());
    out
}

fn port(port: &ServicePort) -> Port {
    Port { name: port.name.as_deref().unwrap_or_default().into(), port: number(port.port), protocol: protocol(port) }
}

/// Ports that are never sniffed, because a wrong guess breaks the application: SMTP, DNS, MySQL, MongoDB.
const WELL_KNOWN: &[i32] = &[25, 53, 3306, 27017];

/// The protocol of a service port (Istio's `ConvertProtocol`): `appProtocol`, else the prefix of the port name before its first
/// dash.
fn protocol(port: &ServicePort) -> Protocol {
    if port.protocol.as_deref() == Some("UDP") {
        return Protocol::Udp;
    }
    let name = match port.app_protocol.as_deref() {
        Some("kubernetes.io/h2c") => return Protocol::Http2,
        Some("kubernetes.io/ws") => return Protocol::Http,
        Some("kubernetes.io/wss") => return Protocol::Https,
        Some(written) => written,
        None => port.name.as_deref().unwrap_or_default(),
    };
    if name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("grpc-web")) {
        return Protocol::GrpcWeb;
    }
    let first = name.split('-').next().unwrap_or_default();
    match Protocol::parse(first) {
        Protocol::Unsupported | Protocol::Hbone | Protocol::DoubleHbone if WELL_KNOWN.contains(&port.port) => {
            Protocol::Tcp
        }
        Protocol::Hbone | Protocol::DoubleHbone => Protocol::Unsupported,
        known => known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: i32, name: &str, app: Option<&str>, l4: &str) -> Protocol {
        protocol(&ServicePort {
            port: number,
            name: Some(name.to_string()),
            app_protocol: app.map(str::to_string),
            protocol: Some(l4.to_string()),
            ..ServicePort::default()
        })
    }

    #[test]
    fn numbers_that_are_no_ports_are_left_out() {
        let of = |n: i32| ServicePort { port: n, ..ServicePort::default() };
        let spec = ServiceSpec { ports: Some([-1, 0, 1, 65_535, 65_536].map(of).into()), ..ServiceSpec::default() };
        assert_eq!(ports(&spec).map(|p| p.port).collect::<Vec<_>>(), [1, 65_535]);
    }

    #[test]
    fn protocols_of_ports() {
        assert_eq!(of(80, "http", None, "TCP"), Protocol::Http);
        assert_eq!(of(80, "HTTP2-x", None, "TCP"), Protocol::Http2);
        assert_eq!(of(80, "grpc-web-x", None, "TCP"), Protocol::GrpcWeb);
        assert_eq!(of(80, "grpcx", None, "TCP"), Protocol::Unsupported);
        assert_eq!(of(80, "http", None, "UDP"), Protocol::Udp);
        assert_eq!(of(80, "http", Some("mongo"), "TCP"), Protocol::Mongo);
        assert_eq!(of(80, "x", Some("kubernetes.io/h2c"), "TCP"), Protocol::Http2);
        assert_eq!(of(3306, "x", None, "TCP"), Protocol::Tcp);
        assert_eq!(of(3306, "http-x", None, "TCP"), Protocol::Http);
        assert_eq!(of(80, "hbone", None, "TCP"), Protocol::Unsupported);
    }
}
