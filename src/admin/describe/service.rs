//! One service: its ports, the rules and routes for it, the gateways that expose it, and the TLS between clients and workloads.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{
    client_tls::client_tls,
    full_name, node_of, object,
    workload::{dotted, mode, policies},
};
use crate::{
    model::{Endpoint, HealthStatus, Registry, Service, host},
    proto::networking,
    push::{
        MergedDestinationRule, PushContext,
        authn::MtlsMode,
        virtual_services::{MESH_GATEWAY, destinations},
    },
};

/// Workloads of which the policies are shown.
const MOST_WORKLOADS: usize = 50;

/// The description of a service, as a client of its own namespace sees it.
pub(in crate::admin) fn describe(context: &PushContext, service: &Service) -> Value {
    let rules = context.destination_rules.candidates(
        &context.inputs,
        &service.namespace,
        &service.hostname,
        &service.namespace,
    );
    // A rule for certain workloads counts for these alone.
    let rule = rules.iter().rfind(|rule| rule.selector().is_none()).or(rules.first());
    let endpoints = context.endpoints().get(&service.hostname, &service.namespace);
    let endpoints: Vec<&Arc<Endpoint>> = endpoints.iter().flat_map(|set| set.iter()).collect();
    let workloads = workloads(context, service, &endpoints);
    let mut warnings = Vec::new();
    let ports =
        service.ports.iter().map(|port| {
            let (client, is_mutual) = clients_of(context, service, rule, port.port);
            let strict = workloads.iter().filter(|workload| workload.strict.contains(&port.port) && !is_mutual);
            warnings.extend(strict.map(|w| {
                format!("port {}: clients send no mutual TLS, and {} accepts nothing else", port.port, w.name)
            }));
            json!({"port": port.port, "name": &*port.name, "protocol": port.protocol.as_str(), "clients": client})
        });
    let ports: Vec<Value> = ports.collect();
    let (routes, gateways) = routes(context, service);
    let kind = if service.registry == Registry::Kubernetes { "Service" } else { "ServiceEntry" };
    // A ServiceEntry says nothing of health, and Envoy takes its endpoints for healthy.
    let is_healthy = |health| matches!(health, HealthStatus::Healthy | HealthStatus::Unknown);
    let healthy = endpoints.iter().filter(|endpoint| is_healthy(endpoint.health)).count();
    json!({
        "service": format!("{}.{}", service.object_name, service.namespace), "kind": kind, "host": &*service.hostname,
        "address": service.default_address, "meshExternal": service.mesh_external,
        "resolution": format!("{:?}", service.resolution), "ports": ports,
        "endpoints": {"all": endpoints.len(), "healthy": healthy},
        "destinationRules": rules.iter().map(|rule| shown(rule)).collect::<Vec<_>>(),
        "virtualServices": routes, "gateways": gateways,
        "workloads": workloads.into_iter().map(|workload| workload.value).collect::<Vec<_>>(), "warnings": warnings,
    })
}

fn shown(rule: &MergedDestinationRule) -> Value {
    let from: Vec<String> = rule.from.iter().map(|(name, namespace)| format!("{name}.{namespace}")).collect();
    let subsets: Vec<&str> = rule.rule.subsets.iter().map(|subset| subset.name.as_str()).collect();
    json!({
        "name": format!("{}.{}", rule.name, rule.namespace), "host": rule.rule.host, "from": from, "subsets": subsets,
        "workloadSelector": rule.selector(), "hasTrafficPolicy": rule.rule.traffic_policy.is_some(),
    })
}

/// TLS that clients send to a port, in words, and whether it is mutual TLS of the mesh.
fn clients_of(
    context: &PushContext,
    service: &Service,
    rule: Option<&Arc<MergedDestinationRule>>,
    port: u32,
) -> (String, bool) {
    let (tls, by_rule) = client_tls(context, service, rule, port);
    let by = rule.filter(|_| by_rule).map(|rule| format!(" (DestinationRule {}.{})", rule.name, rule.namespace));
    (tls.words().to_string() + &by.unwrap_or_default(), tls.is_mutual())
}

/// A workload behind a service.
struct Workload {
    name: String,
    /// Ports of the service that it accepts on with mutual TLS alone.
    strict: Vec<u32>,
    value: Value,
}

fn workloads(context: &PushContext, service: &Service, endpoints: &[&Arc<Endpoint>]) -> Vec<Workload> {
    let mut by_name: BTreeMap<(&str, &str), Vec<&Endpoint>> = BTreeMap::new();
    for endpoint in endpoints {
        let name = if endpoint.workload_name.is_empty() {
            endpoint.addresses.first().map_or("", |address| address)
        } else {
            &endpoint.workload_name
        };
        by_name.entry((&endpoint.namespace, name)).or_default().push(endpoint);
    }
    let describe = |((namespace, name), endpoints): ((&str, &str), Vec<&Endpoint>)| {
        let node = node_of(context, endpoints.first()?)?;
        let view = context.view_of(&node);
        let peer = context.authn.policy(&view.namespace, &view.labels);
        // A workload without a proxy enforces nothing.
        let guarded = endpoints.iter().filter(|endpoint| &*endpoint.tls_mode == "istio");
        let strict = guarded.filter(|endpoint| peer.for_port(endpoint.port) == MtlsMode::Strict);
        let of_service = |endpoint: &&Endpoint| match endpoint.legacy_cluster_port_key {
            0 => service.ports.iter().find(|port| port.name == endpoint.service_port_name).map(|port| port.port),
            port => Some(port),
        };
        let strict = strict.filter_map(of_service).collect();
        let mut ports: Vec<(u32, &str)> =
            endpoints.iter().map(|endpoint| (endpoint.port, mode(peer.for_port(endpoint.port)))).collect();
        ports.sort_unstable();
        ports.dedup();
        let ports: Vec<Value> = ports.iter().map(|(port, mode)| json!({"port": port, "mutualTls": mode})).collect();
        let name = format!("{name}.{namespace}");
        let value = json!({
            "workload": name, "endpoints": endpoints.len(), "ports": ports, "policies": policies(context, &view),
        });
        Some(Workload { name, strict, value })
    };
    by_name.into_iter().take(MOST_WORKLOADS).filter_map(describe).collect()
}

/// The VirtualServices that sidecars follow for the service, and the gateways that route to it.
fn routes(context: &PushContext, service: &Service) -> (Vec<Value>, Vec<Value>) {
    let (mut routes, mut exposed) = (Vec::new(), Vec::new());
    for config in context.virtual_services.for_namespace(&service.namespace, MESH_GATEWAY) {
        let Some(spec) = config.virtual_service() else { continue };
        if spec.hosts.iter().any(|name| host::matches(name, &service.hostname)) {
            let mut shown = object(&config);
            shown["hosts"] = json!(spec.hosts);
            shown["destinations"] = json!(destinations(spec, "").keys().collect::<Vec<_>>());
            routes.push(shown);
        }
    }
    for config in &context.virtual_services.all {
        let Some(spec) = config.virtual_service() else { continue };
        if !destinations(spec, "").contains_key(&*service.hostname) {
            continue;
        }
        for gateway in spec.gateways.iter().filter(|gateway| *gateway != MESH_GATEWAY) {
            let of = context.gateways.all.iter().find(|g| format!("{}/{}", g.meta.namespace, g.meta.name) == *gateway);
            let servers: Vec<Value> =
                of.and_then(|g| g.gateway()).iter().flat_map(|g| &g.servers).map(server).collect();
            exposed.push(json!({
                "gateway": dotted(gateway), "exists": of.is_some(), "servers": servers, "hosts": spec.hosts,
                "virtualService": full_name(config),
            }));
        }
    }
    (routes, exposed)
}

fn server(server: &networking::Server) -> Value {
    let port = server.port.as_ref();
    json!({
        "port": port.map(|port| port.number), "protocol": port.map(|port| port.protocol.as_str()), "hosts": server.hosts,
    })
}
