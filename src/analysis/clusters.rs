//! Services of several clusters: one name stands for one service of the mesh, so its type and ports are the same in all of them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1::{ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::{code::Code, message::Report, world::World};
use crate::model::{Config, Kind};

pub(super) fn analyze(world: &World<'_>, report: &mut Report) {
    let own = &*world.mesh().cluster_id;
    let mut by_name: BTreeMap<(&str, &str), Vec<Instance<'_>>> = BTreeMap::new();
    for (index, config) in world.objects.iter().enumerate().filter_map(|(i, object)| Some((i, object.config()?))) {
        let Some(spec) = spec(config) else { continue };
        let cluster = if config.is_of_main_cluster() { own } else { &*config.origin.cluster };
        let name = (&*config.meta.namespace, &*config.meta.name);
        by_name.entry(name).or_default().push(Instance { index, cluster, spec });
    }
    for ((namespace, name), mut instances) in by_name {
        instances.sort_by_key(|instance| (instance.cluster != own, instance.cluster));
        let Some((first, others)) = instances.split_first() else { continue };
        let (clusters, differences) = compare(first, others);
        let Some((path, _)) = differences.first() else { continue };
        let reasons: Vec<&str> = differences.iter().map(|(_, reason)| *reason).collect();
        let clusters: Vec<String> = clusters.iter().map(|cluster| format!("{cluster:?}")).collect();
        let text = format!(
            "The service {name} in namespace {namespace:?} is inconsistent across clusters [{}], which can lead to undefined \
             behaviors. The inconsistent behaviors are: {}.",
            clusters.join(" "),
            reasons.join("; ")
        );
        report.add(Code::MultiClusterInconsistentService, first.index, *path, text);
    }
}

/// A service in one cluster.
struct Instance<'a> {
    index: usize,
    cluster: &'a str,
    spec: &'a ServiceSpec,
}

fn spec(config: &Config) -> Option<&ServiceSpec> {
    Some(config).filter(|config| config.kind() == Kind::Service)?.service()?.spec.as_ref()
}

/// The clusters that differ from the first one, with it, and each kind of difference with the path of its field.
fn compare<'a>(
    first: &Instance<'a>,
    others: &[Instance<'a>],
) -> (BTreeSet<&'a str>, Vec<(&'static str, &'static str)>) {
    const ASPECTS: [(&str, &str, fn(&ServiceSpec, &ServiceSpec) -> bool); 3] = [
        ("spec.clusterIP", "service has mixed mode like headless and clusterIP", |a, b| {
            is_headless(a) == is_headless(b)
        }),
        ("spec.type", "service type is inconsistent", |a, b| type_of(a) == type_of(b)),
        ("spec.ports", "service ports are inconsistent", |a, b| ports(a) == ports(b)),
    ];
    let (mut clusters, mut differences) = (BTreeSet::new(), Vec::new());
    for (path, reason, is_same) in ASPECTS {
        let differing = others.iter().filter(|other| !is_same(first.spec, other.spec));
        let differing: Vec<&str> = differing.map(|other| other.cluster).collect();
        if !differing.is_empty() {
            clusters.insert(first.cluster);
            clusters.extend(differing);
            differences.push((path, reason));
        }
    }
    (clusters, differences)
}

fn is_headless(spec: &ServiceSpec) -> bool {
    spec.cluster_ip.as_deref() == Some("None")
}

fn type_of(spec: &ServiceSpec) -> &str {
    spec.type_.as_deref().unwrap_or("ClusterIP")
}

/// The ports in the order of their names, with the defaults of Kubernetes. A node port is the choice of each cluster.
fn ports(spec: &ServiceSpec) -> Vec<ServicePort> {
    let mut ports: Vec<ServicePort> = spec.ports.iter().flatten().cloned().collect();
    for port in &mut ports {
        port.node_port = None;
        port.protocol.get_or_insert_with(|| "TCP".to_string());
        port.target_port.get_or_insert(IntOrString::Int(port.port));
    }
    ports.sort_by(|a, b| (&a.name, a.port).cmp(&(&b.name, b.port)));
    ports
}
