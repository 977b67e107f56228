//! The mesh that is measured: services of two endpoints in ten namespaces, nine tenths of them HTTP on three ports, a tenth
//! with a VirtualService and a DestinationRule of two subsets. The shape that `judge gen` writes.

use std::{fmt::Write, path::PathBuf, sync::Arc};

use pilothouse::{
    model::{Config, ConfigEvent, ConfigSnapshot, EventKind, Features, Locality, Mesh, Node, Origin, RegistrySnapshot},
    push::{PushContext, context::PushInputs},
    registry::ServiceEntryStore,
    sources::file::parse::parse_text,
};
use serde_json::json;

const NAMESPACES: usize = 10;
const HTTP_PORTS: [u32; 3] = [80, 8080, 9080];

fn host(i: usize) -> String {
    format!("svc-{i:05}.ns-{}.mesh.example", i % NAMESPACES)
}

fn service_entry(i: usize, state: usize, out: &mut String) {
    let (namespace, host) = (i % NAMESPACES, host(i));
    let (port, protocol) =
        if i % 10 == 9 { (10_000 + i as u32, "TCP") } else { (HTTP_PORTS[i % HTTP_PORTS.len()], "HTTP") };
    let _ = writeln!(
        out,
        "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\n\
         metadata: {{name: svc-{i:05}, namespace: ns-{namespace}}}\nspec:\n  hosts: [{host}]\n  \
         addresses: [172.16.{}.{}]\n  location: MESH_INTERNAL\n  resolution: STATIC\n  \
         ports: [{{number: {port}, name: main, protocol: {protocol}, targetPort: 18080}}]\n  endpoints:\n  \
         - {{address: 10.{}.{}.{state}, labels: {{app: svc-{i:05}, version: v1}}}}\n  \
         - {{address: 11.{}.{}.1, labels: {{app: svc-{i:05}, version: v2}}}}",
        i / 256 % 256,
        i % 256,
        i / 256 % 256,
        i % 256,
        i / 256 % 256,
        i % 256,
    );
}

fn virtual_service(i: usize, weight: usize, out: &mut String) {
    let (namespace, host) = (i % NAMESPACES, host(i));
    let _ = writeln!(
        out,
        "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\n\
         metadata: {{name: svc-{i:05}, namespace: ns-{namespace}}}\nspec:\n  hosts: [{host}]\n  http:\n  \
         - match: [{{headers: {{x-canary: {{exact: \"1\"}}}}}}]\n    route: [{{destination: {{host: {host}, subset: v2}}}}]\n  \
         - route:\n    - {{destination: {{host: {host}, subset: v1}}, weight: {weight}}}\n    \
         - {{destination: {{host: {host}, subset: v2}}, weight: {}}}",
        100 - weight,
    );
}

fn destination_rule(i: usize, out: &mut String) {
    let (namespace, host) = (i % NAMESPACES, host(i));
    let _ = writeln!(
        out,
        "---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\n\
         metadata: {{name: svc-{i:05}, namespace: ns-{namespace}}}\nspec:\n  host: {host}\n  subsets:\n  \
         - {{name: v1, labels: {{version: v1}}}}\n  - {{name: v2, labels: {{version: v2}}}}",
    );
}

/// The YAML of a mesh of so many services.
pub fn yaml(services: usize) -> String {
    let mut out = String::new();
    for i in 0..services {
        service_entry(i, 1, &mut out);
        if i % 10 == 0 {
            virtual_service(i, 50, &mut out);
            destination_rule(i, &mut out);
        }
    }
    out
}

/// The objects in a YAML stream.
pub fn objects(text: &str) -> Vec<Arc<Config>> {
    let documents = parse_text(&Origin::default(), &Arc::new(PathBuf::from("mesh.yaml")), text);
    documents.iter().flat_map(|d| d.taken().cloned().collect::<Vec<_>>()).collect()
}

fn one(write: impl FnOnce(&mut String)) -> Arc<Config> {
    let mut text = String::new();
    write(&mut text);
    objects(&text).pop().expect("a sound document")
}

/// EnvoyFilters of the root namespace as meshes have them: of ten, four are for one service each, two for one port of listeners,
/// two for one virtual host, one for all clusters and one for all routes.
pub fn envoy_filters(count: usize) -> Vec<Arc<Config>> {
    let mut out = String::new();
    for i in 0..count {
        let patch = match i % 10 {
            0..=3 => format!(
                "{{applyTo: CLUSTER, match: {{cluster: {{service: {}}}}}, patch: {{operation: MERGE, value: {{connect_timeout: 2s}}}}}}",
                host(i)
            ),
            4 | 5 => format!(
                "{{applyTo: HTTP_FILTER, match: {{context: SIDECAR_OUTBOUND, listener: {{portNumber: {}, filterChain: {{filter: {{name: \
                 envoy.filters.network.http_connection_manager}}}}}}}}, patch: {{operation: INSERT_FIRST, value: {{name: lua-{i}, typed_config: \
                 {{\"@type\": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, default_source_code: {{inline_string: \"-- a\"}}}}}}}}}}",
                HTTP_PORTS[i / 10 % HTTP_PORTS.len()]
            ),
            6 | 7 => format!(
                "{{applyTo: VIRTUAL_HOST, match: {{routeConfiguration: {{vhost: {{domainName: {}}}}}}}, \
                 patch: {{operation: MERGE, value: {{include_request_attempt_count: true}}}}}}",
                host(i)
            ),
            8 => "{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND}, patch: {operation: MERGE, value: {per_connection_buffer_limit_bytes: 32768}}}".to_string(),
            _ => "{applyTo: HTTP_ROUTE, match: {routeConfiguration: {vhost: {route: {action: ROUTE}}}}, \
                  patch: {operation: MERGE, value: {route: {max_grpc_timeout: 0s}}}}".to_string(),
        };
        let _ = writeln!(
            out,
            "---\napiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\n\
             metadata: {{name: f-{i:03}, namespace: istio-system}}\nspec:\n  configPatches:\n  - {patch}"
        );
    }
    objects(&out)
}

/// A mesh, with the means of changing it.
pub struct World {
    /// All objects.
    pub configs: ConfigSnapshot,
    /// The registry.
    pub registry: ServiceEntryStore,
}

impl World {
    /// A mesh of so many services.
    pub fn of(services: usize) -> Self {
        let configs = ConfigSnapshot::of(objects(&yaml(services)));
        let registry = ServiceEntryStore::of(Arc::new(Mesh::default()), Arc::new(Features::default()), &configs);
        Self { configs, registry }
    }

    /// Adds objects that are no services.
    pub fn add(&mut self, objects: Vec<Arc<Config>>) {
        let known = self.configs.by_kind.values().flat_map(|list| list.iter()).cloned();
        self.configs = ConfigSnapshot::of(known.chain(objects).collect::<Vec<_>>());
    }

    /// The inputs of a context.
    pub fn inputs(&mut self) -> PushInputs {
        PushInputs { configs: self.configs.clone(), registry: self.registry.snapshot(), ..PushInputs::default() }
    }

    /// The context.
    pub fn context(&mut self) -> PushContext {
        PushContext::build(self.inputs())
    }

    /// Service 0 moves one of its endpoints; `state` is the end of the new address.
    pub fn move_endpoint(&mut self, state: usize) -> RegistrySnapshot {
        let current = one(|out| service_entry(0, state, out));
        self.registry.apply(&ConfigEvent { old: Some(current.clone()), current, kind: EventKind::Update });
        self.registry.snapshot()
    }

    /// The inputs after the VirtualService of service 0 has shifted its weights.
    pub fn shifted(&mut self, weight: usize) -> PushInputs {
        let shifted = one(|out| virtual_service(0, weight, out));
        let same = |c: &Arc<Config>| c.key() == shifted.key();
        let others = self.configs.by_kind.values().flat_map(|l| l.iter()).filter(|c| !same(c)).cloned();
        let all = ConfigSnapshot::of(others.chain([shifted.clone()]));
        let mut inputs = self.inputs();
        inputs.configs.by_kind.extend(all.by_kind.into_iter().filter(|(kind, _)| *kind == shifted.kind()));
        inputs
    }
}

/// A sidecar of a namespace.
pub fn sidecar(namespace: usize) -> Node {
    let id = format!("sidecar~10.200.0.{namespace}~pod.ns-{namespace}~ns-{namespace}.svc.cluster.local");
    Node::from_parts(&id, json!({"CLUSTER_ID": "Kubernetes"}), Locality::default()).expect("a node")
}
