//! The pages about single parts of the context in force, under istiod's names: policies and Telemetries by namespace, gateways
//! between networks, kinds, and for proxies their services and scopes.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value, json};

use super::{AdminState, document::shown};
use crate::{
    discovery::Connection,
    model::{Kind, Service},
};

/// `/debug/pprof`: no profile, and the ways to one. A profile in this form needs a signal handler that walks stacks while the
/// process serves, and the heap's an allocator that keeps a record of every allocation; neither is worth its risk here.
pub(super) fn profiles() -> Value {
    let process = std::process::id();
    json!({
        "profiles": [],
        "reason": "this process takes no profiles of itself: they are taken from outside, without its help",
        "cpu": format!("perf record --call-graph dwarf -p {process} -- sleep 30"),
        "memory": "/metrics (process_resident_memory_bytes), /debug/cachez?sizes=true",
    })
}

/// `/debug/authorizationz`: AuthorizationPolicies by namespace.
pub(super) fn authorization(state: &AdminState) -> Value {
    let root = state.context().map(|context| context.mesh().config.root_namespace.clone()).unwrap_or_default();
    let policies = by_namespace(state, Kind::AuthorizationPolicy);
    json!({"authorization_policies": {"namespace_to_policies": policies, "root_namespace": root}})
}

/// `/debug/telemetryz`: Telemetries by namespace.
pub(super) fn telemetry(state: &AdminState) -> Value {
    let root = state.context().map(|context| context.mesh().config.root_namespace.clone()).unwrap_or_default();
    let telemetries = by_namespace(state, Kind::Telemetry);
    json!({"telemetries": {"namespace_to_telemetries": telemetries, "root_namespace": root}})
}

fn by_namespace(state: &AdminState, kind: Kind) -> Value {
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let context = state.context();
    for config in context.iter().flat_map(|context| context.inputs.configs.list(kind)) {
        all.entry(config.meta.namespace.to_string()).or_default().push(shown(config));
    }
    json!(all)
}

/// `/debug/pushcontext`: the parts of the context in force that istiod shows there.
pub(super) fn push_context(state: &AdminState) -> Value {
    let mut policies = authorization(state);
    json!({"AuthorizationPolicies": policies["authorization_policies"].take(), "NetworkGateways": networks(state)})
}

/// `/debug/networkz`: the gateways between networks.
pub(super) fn networks(state: &AdminState) -> Value {
    let Some(context) = state.context() else { return json!([]) };
    let gateways = context.network_gateways.resolved.iter().map(|gateway| {
        json!({"Network": &*gateway.network, "Cluster": &*gateway.cluster, "Addr": gateway.address, "Port": gateway.port})
    });
    gateways.collect()
}

/// `/debug/resourcesz`: the kinds that are read.
pub(super) fn kinds() -> Value {
    let kind = |kind: &Kind| json!({"Group": kind.group(), "Versions": kind.versions(), "Kind": kind.as_str()});
    Kind::ALL.iter().map(kind).collect()
}

/// `/debug/instancesz`: for each proxy the services that it is behind.
pub(super) fn instances(state: &AdminState) -> Value {
    let Some(context) = state.context() else { return json!({}) };
    let targets = |connection: &Connection| -> Value {
        let targets = context.inputs.registry.targets_of(&connection.node);
        let target = |target: &crate::model::ServiceTarget| {
            let port = json!({"name": &*target.port.name, "port": target.port.port, "protocol": target.port.protocol.as_str()});
            json!({"service": named(&target.service), "port": port, "targetPort": target.target_port})
        };
        targets.iter().map(target).collect()
    };
    let connections = state.xds.connections();
    let entries = connections.iter().map(|connection| (connection.node.id.to_string(), targets(connection)));
    Value::Object(Map::from_iter(entries))
}

/// `/debug/sidecarz`: the services, rules and routes that a proxy's outbound traffic knows.
pub(super) fn scope(state: &AdminState, connection: &Connection) -> Value {
    let Some(context) = state.context() else { return Value::Null };
    let scope = context.scope(&context.view_of(&connection.node));
    let egress = scope.egress.iter().map(|listener| {
        let routes: Vec<String> =
            listener.virtual_services.iter().map(|c| format!("{}/{}", c.meta.namespace, c.meta.name)).collect();
        let services: Vec<Value> = listener.services.iter().map(|service| named(service)).collect();
        json!({"services": services, "virtualServices": routes})
    });
    let mut rules: Vec<String> =
        scope.destination_rules.values().map(|rule| format!("{}/{}", rule.namespace, rule.name)).collect();
    rules.sort_unstable();
    rules.dedup();
    let sidecar = scope.sidecar.as_ref().map(|config: &Arc<_>| shown(config));
    json!({
        "name": &*scope.name, "namespace": &*scope.namespace, "sidecar": sidecar, "destinationRules": rules,
        "egressListeners": egress.collect::<Vec<_>>(), "outboundTrafficPolicy": format!("{:?}", scope.outbound_traffic_policy.mode()),
    })
}

fn named(service: &Service) -> Value {
    json!({"hostname": &*service.hostname, "namespace": &*service.namespace})
}
