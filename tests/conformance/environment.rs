//! From the files of a case to a push context and a node.

use std::{path::Path, sync::Arc};

use pilothouse::{
    model::{
        Config, ConfigSnapshot, Endpoint, Features, Kind, Locality, Mesh, Node, Origin, Port, Protocol, Registry,
        RegistrySnapshot, Resolution, Service, Timestamp, Visibility, decode, kind::KindClass, validation,
    },
    push::{ProxyView, PushContext, context::PushInputs},
    registry,
    translate::Translation,
};
use serde_json::Value;

use crate::data;

/// 2025-01-01T00:00:00Z, the creation time that the recordings give to Istio objects without one.
const RECORDED_CREATION: i64 = 1_735_689_600;

/// Documents to configs as the recorder took them, times filled in. Where the recorder put them before the validator
/// (`checked`), refused ones come second; the tests that `calls` and `generate` are from put them into the store as they are.
pub fn configs(
    documents: &[Value],
    cluster: &str,
    default_namespace: &str,
    checked: bool,
) -> (Vec<Arc<Config>>, Vec<Config>) {
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for document in documents {
        let origin = Origin { source: "case".into(), cluster: cluster.into(), ..Origin::default() };
        let Ok(mut config) = decode::from_value(document, origin) else { continue };
        let istio = config.kind().class() == KindClass::Istio;
        if config.meta.namespace.is_empty() && config.kind().namespaced() {
            config.meta.namespace = default_namespace.into();
        }
        if istio && config.meta.creation == Timestamp::default() {
            config.meta.creation = Timestamp(RECORDED_CREATION);
        }
        let valid = !checked || validation::validate(&config).is_valid();
        if valid { taken.push(Arc::new(config)) } else { refused.push(config) }
    }
    (taken, refused)
}

/// Feature flags of a case.
pub fn features(flags: &Value) -> Features {
    let mut features = Features::default();
    for (name, value) in flags.as_object().into_iter().flatten() {
        let text = value.as_str().map_or_else(|| value.to_string(), String::from);
        let name = if name == "TraceSampling" { "PILOT_TRACE_SAMPLING" } else { name };
        features.set(name, &text).unwrap();
    }
    features
}

/// The creation times of the objects of a case that state none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ages {
    /// All equally old: they were read from one text, and names break ties.
    Equal,
    /// Each younger than the one before: they were put into the store one after the other, which stamped each with the time.
    InOrder,
}

impl Ages {
    fn apply(self, configs: &mut [Arc<Config>]) {
        for (offset, config) in (0..).zip(configs).filter(|_| self == Self::InOrder) {
            if config.meta.creation == Timestamp(RECORDED_CREATION) {
                Arc::make_mut(config).meta.creation = Timestamp(RECORDED_CREATION + offset);
            }
        }
    }
}

/// The context of a `calls` or `generate` case.
pub fn context(folder: &Path, case: &Value, ages: Ages) -> PushContext {
    let cluster = case["clusterID"].as_str().unwrap_or("Kubernetes");
    let mesh = data::yaml(&folder.join("mesh.yaml")).into_iter().next().unwrap_or(Value::Null);
    let mesh = Arc::new(Mesh::from_values(&mesh, &Value::Null, "cluster.local", cluster).unwrap());
    let features = Arc::new(features(&case["featureFlags"]));
    let istio = data::yaml(&folder.join("config.yaml"));
    let (mut all, _) = configs(&istio, "", "default", false);
    ages.apply(&mut all);
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix("kubernetes").and_then(|r| r.strip_suffix(".yaml")) else { continue };
        let (objects, _) = configs(&data::yaml(&folder.join(&name)), rest.trim_start_matches('-'), "default", false);
        all.extend(objects.into_iter().filter(|c| c.kind().class() == KindClass::Kubernetes));
    }
    if folder.join("services.json").exists() {
        undo_default_namespace(&mut all, &data::json(&folder.join("services.json")));
    }
    let configs = ConfigSnapshot::of(all);
    let mut registry = registry::ServiceEntryStore::of(mesh.clone(), features.clone(), &configs).snapshot();
    if folder.join("services.json").exists() && configs.list(Kind::ServiceEntry).is_empty() {
        registry = in_memory(&data::json(&folder.join("services.json")), &data::json(&folder.join("instances.json")));
    }
    // Istio's test store gives its objects no domain, so that short names end in the namespace there; what is translated
    // from other APIs has one.
    let mut inputs =
        Translation::build(PushInputs { mesh: mesh.clone(), features, configs, registry, ..PushInputs::default() })
            .effective();
    inputs.configs.by_kind.retain(|kind, _| *kind != Kind::Ingress && kind.class() != KindClass::GatewayApi);
    inputs.mesh = Arc::new(Mesh { domain: "".into(), ..(*mesh).clone() });
    PushContext::build(inputs)
}

/// The recordings write `default` where an object had no namespace at all. Such are the DestinationRules of the tests
/// `TestSlowStartConfig` and `TestWarmup`: both go through Istio's `buildTestClusters` (`networking/core/cluster_test.go`),
/// which puts the rule into the store with a name only, and their services have names without a dot. To such a host nothing
/// is appended without a namespace; with one it would become `leastrequest.default.svc` and select nothing.
fn undo_default_namespace(configs: &mut [Arc<Config>], services: &Value) {
    let is_service = |host: &str| services.as_array().into_iter().flatten().any(|s| s["hostname"] == host);
    for config in configs {
        let host = config.destination_rule().map_or("", |rule| rule.host.as_str());
        if !host.is_empty() && !host.contains('.') && is_service(host) && &*config.meta.namespace == "default" {
            Arc::make_mut(config).meta.namespace = "".into();
        }
    }
}

fn in_memory(services: &Value, instances: &Value) -> RegistrySnapshot {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
    let services = services.as_array().into_iter().flatten().map(|s| Arc::new(service(s))).collect();
    let endpoints = instances
        .as_array()
        .into_iter()
        .flatten()
        .map(|i| {
            let host: Arc<str> = text(&i["service"]).into();
            (host, Arc::<str>::from(text(&i["serviceNamespace"])), endpoint(i))
        })
        .collect();
    pilothouse::testing::snapshot_of(services, endpoints)
}

fn service(s: &Value) -> Service {
    let text = |key: &str| s[key].as_str().unwrap_or_default();
    Service {
        hostname: text("hostname").into(),
        name: text("name").into(),
        namespace: text("namespace").into(),
        ports: s["ports"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|p| Port {
                name: p["name"].as_str().unwrap_or_default().into(),
                port: p["port"].as_u64().unwrap_or_default() as u32,
                protocol: Protocol::parse(p["protocol"].as_str().unwrap_or_default()),
            })
            .collect(),
        creation_time: text("creationTime")
            .parse::<k8s_openapi::jiff::Timestamp>()
            .map_or(Timestamp(0), |t| Timestamp(t.as_second())),
        default_address: text("address").to_string(),
        resolution: match text("resolution") {
            "DNSLB" => Resolution::DnsLB,
            "DNSRoundRobinLB" => Resolution::DnsRoundRobinLB,
            "Passthrough" => Resolution::Passthrough,
            "Alias" => Resolution::Alias,
            "DynamicDNS" => Resolution::DynamicDns,
            _ => Resolution::ClientSideLB,
        },
        mesh_external: s["meshExternal"].as_bool().unwrap_or_default(),
        registry: match text("registry") {
            "Kubernetes" => Registry::Kubernetes,
            "External" => Registry::External,
            "Mock" => Registry::Mock,
            _ => Registry::None,
        },
        labels: s["labels"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_string())))
            .collect(),
        export_to: s["exportTo"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|v| v.as_str())
            .map(Visibility::parse)
            .collect(),
        ..Service::default()
    }
    .stamped()
}

fn endpoint(i: &Value) -> Endpoint {
    let e = &i["endpoint"];
    let number = |v: &Value| v.as_u64().unwrap_or_default() as u32;
    Endpoint {
        addresses: e["addresses"].as_array().into_iter().flatten().filter_map(|a| a.as_str()).map(Arc::from).collect(),
        port: number(&e["port"]),
        service_port_name: e["servicePortName"].as_str().unwrap_or_default().into(),
        locality: Locality::parse(e["locality"].as_str().unwrap_or_default()),
        lb_weight: number(&e["lbWeight"]),
        tls_mode: e["tlsMode"].as_str().unwrap_or_default().into(),
        ..Endpoint::default()
    }
}

/// The view of a case's `proxy`. Its `labels` are what the recording's control plane knew the workload by, whatever an
/// endpoint at its address says.
pub fn view(context: &PushContext, proxy: &Value) -> ProxyView {
    let node = node(proxy);
    let mut view = context.view_of(&node);
    if proxy["labels"].is_object() {
        view.labels = node.labels;
    }
    view
}

/// The node of a case's `proxy`.
fn node(proxy: &Value) -> Node {
    let text = |key: &str| proxy[key].as_str().unwrap_or_default();
    let l = &proxy["locality"];
    let part = |key: &str| -> Arc<str> { l[key].as_str().unwrap_or_default().into() };
    let locality = Locality { region: part("region"), zone: part("zone"), subzone: part("subZone") };
    let ips: Vec<Arc<str>> =
        proxy["ipAddresses"].as_array().into_iter().flatten().filter_map(|i| i.as_str()).map(Arc::from).collect();
    let id = format!("{}~1.1.1.1~{}~{}", text("type"), text("id"), text("dnsDomain"));
    let mut node = Node::from_parts(&id, proxy["metadata"].clone(), locality).unwrap();
    node.ips = ips;
    node.namespace = text("configNamespace").into();
    node.metadata.istio_version = text("istioVersion").into();
    if let Some(labels) = proxy["labels"].as_object() {
        node.labels = labels.iter().filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_string()))).collect();
    }
    node
}
