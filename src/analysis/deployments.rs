//! Pods and Deployments: the Services over them, and the user that they run as.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use super::{
    code::Code,
    message::Report,
    object::{Object, pairs},
    words::list,
    world::World,
};
use crate::model::{Kind, labels};

/// The user of the proxy.
const PROXY_USER: i64 = 1337;

pub(super) fn analyze(world: &World<'_>, report: &mut Report) {
    for (index, object) in world.unread("apps", "Deployment") {
        let Some(template) = object.pointer("/spec/template") else { continue };
        services(world, report, (index, object), template);
        if let Some(spec) = template.get("spec") {
            users(report, (index, object), spec, "spec.template.spec");
        }
    }
    for (index, config) in world.list(Kind::Pod) {
        let (Some(pod), Some(object)) = (config.pod(), world.objects.get(index)) else { continue };
        let spec = serde_json::to_value(&pod.spec).unwrap_or_default();
        users(report, (index, object), &spec, "spec");
    }
}

fn users(report: &mut Report, (index, object): (usize, &Object), spec: &Value, path: &str) {
    if object.is_control_plane() {
        return;
    }
    let is_proxys =
        |value: &Value| value.pointer("/securityContext/runAsUser").and_then(Value::as_i64) == Some(PROXY_USER);
    let text = "User ID (UID) 1337 is reserved for the sidecar proxy.";
    if is_proxys(spec) {
        report.add(Code::InvalidApplicationUid, index, format!("{path}.securityContext.runAsUser"), text);
    }
    for (i, container) in spec.get("containers").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
        if !["istio-proxy", "istio-operator"].contains(&name) && is_proxys(container) {
            let path = format!("{path}.containers[{i}].securityContext.runAsUser");
            report.add(Code::InvalidApplicationUid, index, path, text);
        }
    }
}

fn services(world: &World<'_>, report: &mut Report, (index, object): (usize, &Object), template: &Value) {
    let (own, annotations) =
        (pairs(template.pointer("/metadata/labels")), pairs(template.pointer("/metadata/annotations")));
    let is_waypoint = object.labels().get("gateway.istio.io/managed").is_some_and(|m| m == "istio.io-mesh-controller");
    let containers = template.pointer("/spec/containers").and_then(Value::as_array);
    let has_proxy =
        containers.into_iter().flatten().any(|c| c.get("name").and_then(Value::as_str) == Some("istio-proxy"));
    if is_waypoint || !(has_proxy || world.is_in_mesh(&object.namespace, &own, &annotations)) {
        return;
    }
    // Port → protocol → names; target port → port → name.
    let mut by_port: BTreeMap<i32, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    let mut by_target: BTreeMap<String, BTreeMap<i32, String>> = BTreeMap::new();
    for (_, config) in world.list(Kind::Service).filter(|(_, c)| c.meta.namespace == object.namespace) {
        let Some(spec) = config.service().and_then(|service| service.spec.as_ref()) else { continue };
        if !spec.selector.as_ref().is_some_and(|s| !s.is_empty() && labels::matches(s, &own)) {
            continue;
        }
        let name = format!("{}/{}", config.meta.namespace, config.meta.name);
        for port in spec.ports.iter().flatten() {
            let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_string());
            by_port.entry(port.port).or_default().entry(protocol).or_default().push(name.clone());
            let target = match &port.target_port {
                Some(IntOrString::Int(n)) if *n != 0 => n.to_string(),
                Some(IntOrString::String(s)) if !s.is_empty() => s.clone(),
                _ => port.port.to_string(),
            };
            by_target.entry(target).or_default().insert(port.port, name.clone());
        }
    }
    for (port, protocols) in by_port.iter().filter(|(_, protocols)| protocols.len() > 1) {
        let mut names: Vec<&String> = protocols.values().flatten().collect();
        names.sort();
        let text = format!(
            "This deployment {} is associated with multiple services using port {port} but different protocols: {}",
            object.name,
            list(names)
        );
        report.add(Code::DeploymentAssociatedToMultipleServices, index, "metadata.name", text);
    }
    for (target, ports) in by_target.iter().filter(|(_, ports)| ports.len() > 1) {
        let mut names: Vec<&String> = ports.values().collect();
        names.sort();
        let numbers: BTreeSet<&i32> = ports.keys().collect();
        let text = format!(
            "This deployment {} is associated with multiple services {} using targetPort {target:?} but different ports: {}.",
            object.name,
            list(names),
            list(numbers)
        );
        report.add(Code::DeploymentConflictingPorts, index, "metadata.name", text);
    }
}
