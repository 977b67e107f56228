//! Random objects: few names, hosts and addresses, so that they meet.

use pilothouse::model::{Origin, decode, validation};
use serde_json::{Value, json};

use crate::{apis, extensions, kubernetes, patches, random::Random, traffic};

/// Namespaces of objects.
pub const NAMESPACES: [&str; 4] = ["shop", "bank", "lone", "istio-system"];
/// Names of workloads, and of the services in front of them.
pub const APPS: [&str; 4] = ["a", "b", "c", "web"];
/// Hosts that are not Kubernetes'.
pub const HOSTS: [&str; 6] =
    ["one.example", "two.example", "three.example", "db.example", "*.wild.example", "api.wild.example"];
/// Addresses of the connected proxies.
pub const PROXIES: [&str; 5] = ["10.20.0.1", "10.20.1.1", "10.20.2.1", "10.20.3.1", "10.20.1.9"];
/// Other addresses.
pub const OTHERS: [&str; 5] = ["10.30.0.1", "10.30.0.2", "10.30.0.3", "10.30.0.4", "10.30.0.5"];
/// Nodes of Kubernetes.
pub const NODES: [&str; 2] = ["node-0", "node-1"];
/// Names of Secrets with certificates.
pub const CERTIFICATES: [&str; 3] = ["cert-0", "cert-1", "cert-2"];

/// An object: one key of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// `apiVersion`, `kind` and all.
    pub value: Value,
}

impl Object {
    /// `Kind/namespace/name`.
    pub fn key(&self) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let (kind, meta) = (text(&self.value["kind"]), &self.value["metadata"]);
        let group = text(&self.value["apiVersion"]).split_once('/').map(|(group, _)| group.to_string());
        format!("{kind}.{}/{}/{}", group.unwrap_or_default(), text(&meta["namespace"]), text(&meta["name"]))
    }
}

/// Makes the content of one kind.
type Maker = fn(&mut Random, &str) -> Value;

/// A kind: its weight, `apiVersion`, `kind`, whether it has namespaces, names, and content.
pub struct Recipe {
    weight: usize,
    api_version: &'static str,
    kind: &'static str,
    namespaced: bool,
    names: &'static [&'static str],
    make: Maker,
}

const fn recipe(
    weight: usize,
    api_version: &'static str,
    kind: &'static str,
    names: &'static [&'static str],
    make: Maker,
) -> Recipe {
    Recipe { weight, api_version, kind, namespaced: true, names, make }
}

const fn cluster_wide(weight: usize, kind: &'static str, names: &'static [&'static str], make: Maker) -> Recipe {
    Recipe { weight, api_version: "v1", kind, namespaced: false, names, make }
}

const NET: &str = "networking.istio.io/v1";
const EXT: &str = "extensions.istio.io/v1alpha1";
const SEC: &str = "security.istio.io/v1";
const GWAPI: &str = "gateway.networking.k8s.io/v1";
const ENTRIES: &[&str] = &["e0", "e1", "e2"];

/// Every kind that has an effect on the resources of proxies.
pub const RECIPES: &[Recipe] = &[
    recipe(10, "v1", "Service", &["a", "b", "c", "web", "gw"], kubernetes::service),
    recipe(
        12,
        "discovery.k8s.io/v1",
        "EndpointSlice",
        &["a-1", "a-2", "b-1", "c-1", "web-1", "gw-1"],
        kubernetes::slice,
    ),
    recipe(10, "v1", "Pod", &["p0", "p1", "p2", "p3"], kubernetes::pod),
    cluster_wide(2, "Node", &NODES, kubernetes::node),
    cluster_wide(2, "Namespace", &NAMESPACES, kubernetes::namespace),
    recipe(6, "v1", "Secret", &CERTIFICATES, kubernetes::secret),
    recipe(3, "v1", "ConfigMap", &["ca-0", "ca-1"], kubernetes::config_map),
    recipe(3, "networking.k8s.io/v1", "Ingress", &["i0", "i1"], kubernetes::ingress),
    recipe(14, NET, "ServiceEntry", ENTRIES, traffic::service_entry),
    recipe(12, NET, "WorkloadEntry", &["w0", "w1", "w2", "w3"], traffic::workload_entry),
    recipe(1, NET, "WorkloadGroup", &["g0"], traffic::workload_group),
    recipe(12, NET, "VirtualService", &["v0", "v1", "v2", "part-0", "part-1"], traffic::virtual_service),
    recipe(10, NET, "DestinationRule", &["d0", "d1", "d2"], traffic::destination_rule),
    recipe(6, NET, "Gateway", &["g0", "g1"], traffic::gateway),
    recipe(6, NET, "Sidecar", &["default", "s0"], traffic::sidecar),
    recipe(5, SEC, "PeerAuthentication", &["default", "p0"], traffic::peer_authentication),
    recipe(6, SEC, "AuthorizationPolicy", &["default", "a0", "a1"], traffic::authorization_policy),
    recipe(4, SEC, "RequestAuthentication", &["default", "t0"], traffic::request_authentication),
    recipe(5, "telemetry.istio.io/v1", "Telemetry", &["default", "l0"], traffic::telemetry),
    recipe(5, "networking.istio.io/v1alpha3", "EnvoyFilter", &["default", "f0"], patches::envoy_filter),
    recipe(3, EXT, "WasmPlugin", &["default", "m0"], extensions::wasm_plugin),
    recipe(4, EXT, "TrafficExtension", &["default", "x0"], extensions::traffic_extension),
    recipe(2, "networking.istio.io/v1beta1", "ProxyConfig", &["default", "x0"], traffic::proxy_config),
    recipe(5, GWAPI, "Gateway", &["k0", "k1"], apis::gateway),
    recipe(6, GWAPI, "HTTPRoute", &["h0", "h1", "h2"], apis::http_route),
    recipe(3, GWAPI, "GRPCRoute", &["r0"], apis::grpc_route),
    recipe(2, "gateway.networking.k8s.io/v1alpha2", "TCPRoute", &["t0"], apis::tcp_route),
    recipe(2, "gateway.networking.k8s.io/v1", "TLSRoute", &["t0"], apis::tls_route),
    recipe(4, "gateway.networking.k8s.io/v1beta1", "ReferenceGrant", &["f0"], apis::reference_grant),
    recipe(2, GWAPI, "BackendTLSPolicy", &["b0"], apis::backend_tls_policy),
    recipe(2, GWAPI, "ListenerSet", &["l0"], apis::listener_set),
    recipe(1, "gateway.networking.x-k8s.io/v1alpha1", "XBackendTrafficPolicy", &["x0"], apis::traffic_policy),
    recipe(1, "inference.networking.k8s.io/v1", "InferencePool", &["pool"], apis::inference_pool),
];

/// A valid object of a random kind and name.
pub fn any(random: &mut Random) -> Object {
    let total: usize = RECIPES.iter().map(|r| r.weight).sum();
    let mut at = random.below(total);
    let recipe = RECIPES
        .iter()
        .find(|r| {
            at < r.weight || {
                at -= r.weight;
                false
            }
        })
        .unwrap_or(&RECIPES[0]);
    let namespace = match recipe.namespaced {
        true => *random.of(&NAMESPACES),
        false => "",
    };
    let name = *random.of(recipe.names);
    of(random, recipe, namespace, name)
}

/// Another content for an object that there is.
pub fn changed(random: &mut Random, object: &Object) -> Object {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let (kind, version) = (text(&object.value["kind"]), text(&object.value["apiVersion"]));
    let recipe = RECIPES.iter().find(|r| r.kind == kind && r.api_version == version).expect("an object of a recipe");
    let meta = &object.value["metadata"];
    of(random, recipe, &text(&meta["namespace"]), &text(&meta["name"]))
}

fn of(random: &mut Random, recipe: &Recipe, namespace: &str, name: &str) -> Object {
    for _ in 0..50 {
        // A maker looks at the name where the content goes with it.
        let mut value = (recipe.make)(random, name);
        value["apiVersion"] = json!(recipe.api_version);
        value["kind"] = json!(recipe.kind);
        value["metadata"]["name"] = json!(name);
        if recipe.namespaced {
            value["metadata"]["namespace"] = json!(namespace);
        }
        if random.chance(40) {
            value["metadata"]["creationTimestamp"] =
                json!(random.of(&["2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"]));
        }
        place(&mut value, namespace);
        if is_valid(&value) {
            return Object { value };
        }
    }
    panic!("no valid object of kind {} named {name} came in 50 attempts", recipe.kind);
}

/// Puts the namespace where content asks for it.
fn place(value: &mut Value, namespace: &str) {
    match value {
        Value::String(text) if text.contains("$NS") => *text = text.replace("$NS", namespace),
        Value::Array(all) => all.iter_mut().for_each(|v| place(v, namespace)),
        Value::Object(all) => all.values_mut().for_each(|v| place(v, namespace)),
        _ => {}
    }
}

fn is_valid(value: &Value) -> bool {
    match decode::with_warnings(value, Origin::default()) {
        Ok((config, _)) => validation::validate(&config).is_valid(),
        Err(_) => false,
    }
}

/// The reason that a value is not valid, to repair its recipe.
pub fn refusal(value: &Value) -> String {
    match decode::with_warnings(value, Origin::default()) {
        Ok((config, _)) => format!("{:?}", validation::validate(&config)),
        Err(error) => error.to_string(),
    }
}

/// A host that a client may call.
pub fn host(random: &mut Random) -> String {
    match random.chance(50) {
        true => (*random.of(&HOSTS)).to_string(),
        false => format!("{}.{}.svc.cluster.local", random.of(&APPS), random.of(&NAMESPACES[..3])),
    }
}

/// An address; every other time that of a connected proxy.
pub fn address(random: &mut Random) -> &'static str {
    let places: &[&'static str] = if random.chance(50) { &PROXIES } else { &OTHERS };
    let place: &&'static str = random.of(places);
    place
}

/// Labels of a workload.
pub fn labels(random: &mut Random) -> Value {
    let mut labels = json!({"app": random.of(&APPS)});
    if random.chance(60) {
        labels["version"] = json!(random.of(&["v1", "v2"]));
    }
    labels
}

/// `exportTo`, or nothing.
pub fn export_to(random: &mut Random) -> Value {
    match random.below(8) {
        0 => json!(["."]),
        1 => json!(["*"]),
        2 => json!(["~"]),
        3 => json!([random.of(&NAMESPACES)]),
        _ => Value::Null,
    }
}

/// Adds the present values.
pub fn put(value: &mut Value, key: &str, what: Value) {
    if !what.is_null() {
        value[key] = what;
    }
}

#[test]
fn every_recipe_makes_valid_objects() {
    let mut random = Random::new(1);
    for recipe in RECIPES {
        let namespace = if recipe.namespaced { "shop" } else { "" };
        for _ in 0..200 {
            for name in recipe.names {
                let object = of(&mut random, recipe, namespace, name);
                assert!(is_valid(&object.value), "{}", refusal(&object.value));
            }
        }
    }
}
