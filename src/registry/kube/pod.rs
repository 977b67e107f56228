//! The parts of a Pod that the registry reads, converted once (Istio's `PodCache` and `EndpointBuilder`).

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod as PodObject, PodSpec, PodStatus};

use crate::{
    model::{
        Config, Endpoint, HealthStatus, Interner, LabelLookup, LabelSet, Locality, WorkloadInstance,
        labels::whole_locality,
    },
    registry::env::{Env, augment_labels, is_padded, names, parse_locality},
};

/// A named port of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPort {
    /// Name of the port.
    pub name: String,
    /// `TCP`, `UDP`, `SCTP`.
    pub protocol: String,
    /// Container port number.
    pub port: u32,
}

/// A Pod, as far as the registry reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Name of the Pod.
    pub name: Arc<str>,
    /// Namespace of the Pod.
    pub namespace: Arc<str>,
    /// `metadata.labels`.
    pub labels: Arc<LabelSet>,
    /// Addresses; the first is the pod's own.
    pub ips: Vec<Arc<str>>,
    /// Whether the Pod is ready, has an address and is not terminating.
    pub in_endpoints: bool,
    /// Named ports; the first of a name wins. Those of sidecar init containers come last.
    pub ports: Vec<NamedPort>,
    /// Service account name.
    pub account: Arc<str>,
    /// An endpoint of this Pod; address and port are still unset.
    pub template: Endpoint,
}

/// Whether the registry reads the Pod: the watch filters failed ones.
pub fn is_visible(pod: &PodObject) -> bool {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()) != Some("Failed")
}

impl Pod {
    /// Converts a Pod. `locality` is that of its Node, `network` that of its cluster by label.
    pub fn of(
        env: &Env,
        interner: &mut Interner,
        config: &Config,
        object: &PodObject,
        node: Option<Locality>,
        network: Option<&str>,
    ) -> Self {
        let meta = &config.meta;
        let (no_spec, no_status) = (PodSpec::default(), PodStatus::default());
        let spec = object.spec.as_ref().unwrap_or(&no_spec);
        let status = object.status.as_ref().unwrap_or(&no_status);
        let cluster = env.cluster(&config.origin.cluster);
        let ips = addresses(interner, status);
        let first = ips.first().cloned().unwrap_or_default();
        let labelled = whole_locality(&meta.labels);
        let locality_is_padded = labelled.as_deref().is_none_or(is_padded);
        let locality = labelled.as_deref().map(parse_locality).or(node).unwrap_or_default();
        let network = network_of(env, &cluster, &meta.labels, network, &first);
        let node_name = spec.node_name.as_deref().unwrap_or_default();
        let subdomain = spec.subdomain.as_deref().unwrap_or_default();
        let account = spec.service_account_name.as_deref().unwrap_or_default();
        let hostname = match (subdomain, spec.hostname.as_deref().unwrap_or_default()) {
            ("", _) => "",
            (_, "") => &meta.name,
            (_, written) => written,
        };
        let template = Endpoint {
            labels: interner.labels(&augment_labels(&meta.labels, &cluster, &locality, node_name, &network)),
            service_account: interner.text(&env.spiffe(&cluster, &meta.namespace, account)),
            network,
            locality,
            locality_is_padded,
            cluster,
            tls_mode: interner.text(meta.labels.get(names::TLS_MODE).map_or("disabled", String::as_str)),
            namespace: interner.text(&meta.namespace),
            workload_name: interner.text(&workload_name(config, object)),
            hostname: interner.text(hostname),
            subdomain: interner.text(subdomain),
            node_name: interner.text(node_name),
            // Only ready Pods become instances; EndpointSlices carry more precise conditions where they exist.
            health: HealthStatus::Healthy,
            ..Endpoint::default()
        };
        Self {
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            labels: interner.labels(&meta.labels),
            in_endpoints: !ips.is_empty() && is_ready(status) && object.metadata.deletion_timestamp.is_none(),
            ips,
            ports: named_ports(&spec.containers, spec.init_containers.as_deref().unwrap_or_default()),
            account: interner.text(account),
            template,
        }
    }

    /// The number of a named port.
    pub fn port(&self, name: &str, protocol: &str) -> Option<u32> {
        self.ports.iter().find(|p| p.name == name && p.protocol == protocol).map(|p| p.port)
    }

    /// The Pod as a workload for ServiceEntry selectors; `None` while it is not ready.
    pub fn instance(&self, env: &Env) -> Option<Arc<WorkloadInstance>> {
        if !self.in_endpoints {
            return None;
        }
        let mut endpoint = self.template.clone();
        endpoint.addresses = match env.features.istio_dual_stack {
            true => self.ips.clone(),
            false => self.ips.first().cloned().into_iter().collect(),
        };
        endpoint.send_unhealthy = env.features.send_unhealthy_endpoints || env.features.auto_send_unhealthy_endpoints;
        let tcp = self.ports.iter().filter(|p| p.protocol == "TCP");
        Some(Arc::new(WorkloadInstance {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            pod: true,
            endpoint,
            port_map: tcp.rev().map(|p| (p.name.clone(), p.port)).collect(),
            dns_service_entry_only: false,
        }))
    }
}

/// The network of an address: from the workload's label, else the cluster's (label of its root namespace), else mesh networks.
pub fn network_of(
    env: &Env,
    cluster: &str,
    labels: &impl LabelLookup,
    of_cluster: Option<&str>,
    address: &str,
) -> Arc<str> {
    let written = labels.value(names::NETWORK).filter(|n| !n.is_empty()).or(of_cluster);
    match written {
        Some(network) => network.into(),
        None => env.network(cluster, address).unwrap_or_default(),
    }
}

fn addresses(interner: &mut Interner, status: &PodStatus) -> Vec<Arc<str>> {
    let Some(first) = status.pod_ip.as_deref().filter(|ip| !ip.is_empty()) else { return Vec::new() };
    let mut ips = vec![interner.text(first)];
    let others = status.pod_ips.iter().flatten().map(|p| p.ip.as_str());
    ips.extend(others.filter(|ip| *ip != first && !ip.is_empty()).map(|ip| interner.text(ip)));
    ips
}

fn is_ready(status: &PodStatus) -> bool {
    !matches!(status.phase.as_deref(), Some("Failed" | "Succeeded"))
        && status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

fn named_ports(containers: &[Container], init: &[Container]) -> Vec<NamedPort> {
    let sidecars = init.iter().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
    let mut out: Vec<NamedPort> = Vec::new();
    for port in ports {
        let Some(name) = port.name.as_ref().filter(|n| !n.is_empty()) else { continue };
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        out.push(NamedPort {
            name: name.clone(),
            protocol: protocol.to_string(),
            port: u32::try_from(port.container_port).unwrap_or_default(),
        });
    }
    out
}

/// The workload name: a label, else the name of the Pod's controller (the Deployment of a ReplicaSet), else the Pod's name.
fn workload_name(config: &Config, object: &PodObject) -> String {
    let labels = &config.meta.labels;
    if let Some(name) = labels.get(names::WORKLOAD_NAME) {
        return name.clone();
    }
    let generated = object.metadata.generate_name.as_deref().is_some_and(|n| !n.is_empty());
    let owners = object.metadata.owner_references.iter().flatten();
    let Some(owner) = owners.filter(|_| generated).find(|o| o.controller == Some(true)) else {
        return config.meta.name.to_string();
    };
    let without_hash = |label: &str| {
        let hash = labels.get(label).filter(|h| owner.kind == "ReplicaSet" && !h.is_empty())?;
        owner.name.strip_suffix(hash.as_str()).map(|n| n.strip_suffix('-').unwrap_or(n).to_string())
    };
    match owner.kind.as_str() {
        "ReplicationController" if labels.get("deploymentconfig").is_some_and(|d| !d.is_empty()) => {
            labels.get("deploymentconfig").cloned().unwrap_or_default()
        }
        "Job" => cron_job(&owner.name).unwrap_or(&owner.name).to_string(),
        _ => without_hash("pod-template-hash")
            .or_else(|| without_hash("rollouts-pod-template-hash"))
            .unwrap_or_else(|| owner.name.clone()),
    }
}

/// The CronJob of a Job whose name ends in a time of 8 to 10 digits.
fn cron_job(job: &str) -> Option<&str> {
    let (name, time) = job.rsplit_once('-')?;
    let is_time = (8..=10).contains(&time.len()) && time.bytes().all(|b| b.is_ascii_digit());
    (is_time && !name.is_empty()).then_some(name)
}
