//! Family `gateway-api`: Gateway API objects in, Istio objects and statuses out.

use std::sync::Arc;

use pilothouse::{
    model::{
        Config, ConfigKey, ConfigSnapshot, Endpoint, Kind, Mesh, Origin, Port, Protocol, PushInputs, Resolution,
        Service, decode,
    },
    proto::to_json,
    translate::Translation,
};
use serde_json::{Value, json};

use crate::{
    data::{self, Case, Verdict},
    environment,
};

/// Objects and statuses as they are recorded; transition times do not count.
pub fn check(case: &Case) -> Verdict {
    let translation = Translation::build(inputs(case));
    let before = recorded(case, "input.yaml", status_of);
    let mut differences = compare("object", &objects(&translation), &recorded(case, "expected.yaml", spec_of));
    let mut statuses = statuses(&translation);
    // Istio writes no status that the object has already.
    statuses.retain(|status| !before.contains(status));
    differences.extend(compare("status", &statuses, &recorded(case, "expected-status.yaml", status_of)));
    Verdict::of(differences)
}

/// Objects with their names, sorted: their order says nothing.
pub type Documents = Vec<(String, Value)>;

fn sorted(documents: impl Iterator<Item = (String, Value)>) -> Documents {
    let mut all: Documents = documents.collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all
}

/// Compares the names, of which none may be there twice, and then each object.
pub fn compare(what: &str, got: &Documents, wanted: &Documents) -> Vec<String> {
    let names = |list: &Documents| list.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let (got_names, wanted_names) = (names(got), names(wanted));
    let mut lines = Vec::new();
    if got_names != wanted_names {
        lines.push(format!("{what}s\n  wanted {wanted_names:?}\n  got    {got_names:?}"));
    }
    for (at, (name, wanted_value)) in wanted.iter().enumerate() {
        // Of several with one name, each is compared with the one in its place.
        let nth = wanted[..at].iter().filter(|(n, _)| n == name).count();
        let got = got.iter().filter(|(n, _)| n == name).nth(nth).map(|(_, value)| value);
        let wanted = wanted_value;
        if let Some(got) = got.filter(|got| *got != wanted) {
            lines.push(format!("{what} {name}\n  wanted {wanted}\n  got    {got}"));
        }
    }
    lines
}

fn name_of(kind: &str, namespace: &str, name: &str) -> String {
    format!("{kind} {namespace}/{name}")
}

pub fn recorded(case: &Case, file: &str, of: fn(&Value) -> Value) -> Documents {
    let path = case.folder.join(file);
    let documents = if path.exists() { data::yaml(&path) } else { Vec::new() };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let named = |document: &Value| {
        let meta = &document["metadata"];
        name_of(&text(&document["kind"]), &text(&meta["namespace"]), &text(&meta["name"]))
    };
    sorted(documents.iter().map(|document| (named(document), of(document))))
}

pub fn spec_of(document: &Value) -> Value {
    let origin = Origin::default();
    let config = decode::from_value(document, origin).unwrap();
    object(&config)
}

fn status_of(document: &Value) -> Value {
    without_times(document["status"].clone())
}

fn object(config: &Config) -> Value {
    let spec = match config.kind() {
        Kind::Gateway => to_json(config.gateway().unwrap()),
        Kind::VirtualService => to_json(config.virtual_service().unwrap()),
        _ => to_json(config.destination_rule().unwrap()),
    };
    json!({"annotations": config.meta.annotations, "spec": spec.unwrap()})
}

pub fn objects(translation: &Translation) -> Documents {
    let lists = [&translation.gateways, &translation.virtual_services, &translation.destination_rules];
    let all = lists.into_iter().flatten();
    sorted(all.map(|c| (name_of(c.kind().as_str(), &c.meta.namespace, &c.meta.name), object(c))))
}

fn statuses(translation: &Translation) -> Documents {
    let named = |key: &ConfigKey| name_of(key.kind.as_str(), &key.namespace, &key.name);
    sorted(translation.statuses.iter().map(|(key, status)| (named(key), without_times(status.clone()))))
}

fn without_times(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            map.remove("lastTransitionTime");
            map.values_mut().for_each(|v| *v = without_times(v.take()));
        }
        Value::Array(list) => list.iter_mut().for_each(|v| *v = without_times(v.take())),
        _ => {}
    }
    value
}

/// The case's objects in the surroundings that all cases share.
fn inputs(case: &Case) -> PushInputs {
    let surroundings = case.folder.parent().unwrap().join("environment.yaml");
    let surroundings = data::yaml(&surroundings).into_iter().next().unwrap();
    let mut flags = surroundings["featureFlags"].clone();
    let alpha = flags["EnableAlphaGatewayAPI"].take();
    flags["PILOT_ENABLE_ALPHA_GATEWAY_API"] = alpha;
    let domain = surroundings["domainSuffix"].as_str().unwrap();
    let mesh = Arc::new(Mesh::from_values(&Value::Null, &Value::Null, domain, "Kubernetes").unwrap());
    let services: Vec<Service> = surroundings["services"].as_array().unwrap().iter().map(service).collect();
    let mut documents = data::yaml(&case.folder.join("input.yaml"));
    // Istio tells objects apart by uid, and in the recordings those without one are the same to it.
    for meta in documents.iter_mut().map(|document| &mut document["metadata"]).filter(|meta| meta["uid"].is_null()) {
        meta["uid"] = "none".into();
    }
    documents.extend(surroundings["objects"].as_array().unwrap().iter().cloned());
    documents.extend(services.iter().filter_map(|s| kubernetes_service(s, domain)));
    let (mut configs, _) = environment::configs(&documents, "", "", false);
    let namespaces: std::collections::BTreeSet<Arc<str>> =
        environment::configs(&data::yaml(&case.folder.join("input.yaml")), "", "", false)
            .0
            .iter()
            .map(|c| c.meta.namespace.clone())
            .filter(|n| !n.is_empty())
            .collect();
    let namespaces: Vec<Value> = namespaces.iter().map(|name| namespace(name)).collect();
    configs.extend(environment::configs(&namespaces, "", "", false).0);
    let endpoints = services.iter().flat_map(endpoints).collect();
    let registry = pilothouse::testing::snapshot_of(services.into_iter().map(Arc::new).collect(), endpoints);
    let features = Arc::new(environment::features(&flags));
    PushInputs { mesh, features, configs: ConfigSnapshot::of(configs), registry, ..PushInputs::default() }
}

fn namespace(name: &str) -> Value {
    let part = name.split('-').next().unwrap_or_default();
    let labels = json!({"istio.io/test-name-part": part});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

fn service(value: &Value) -> Service {
    let text = |key: &str| value[key].as_str().unwrap_or_default();
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().map(|v| v.as_str().unwrap().to_string()).collect()
    };
    let port = |p: &Value| Port {
        name: p["name"].as_str().unwrap().into(),
        port: u32::try_from(p["port"].as_u64().unwrap()).unwrap(),
        protocol: Protocol::parse(p["protocol"].as_str().unwrap()),
    };
    let external = value["externalAddresses"].as_object().into_iter().flatten();
    let labels = value["labels"].as_object().into_iter().flatten();
    let service = Service {
        hostname: text("hostname").into(),
        name: text("name").into(),
        namespace: text("namespace").into(),
        ports: value["ports"].as_array().into_iter().flatten().map(port).collect(),
        resolution: Resolution::ClientSideLB,
        cluster_external_addresses: external.map(|(c, list)| (c.as_str().into(), strings(list))).collect(),
        labels: labels.map(|(k, v)| (k.clone(), v.as_str().unwrap().to_string())).collect(),
        ..Service::default()
    };
    service.stamped()
}

fn kubernetes_service(service: &Service, domain: &str) -> Option<Value> {
    service.hostname.ends_with(domain).then(|| {
        let first = service.hostname.split('.').next().unwrap_or_default();
        let name = if service.name.is_empty() { first } else { &service.name };
        let ports = json!([
            {"name": "http", "protocol": "HTTP", "port": 80},
            {"name": "tcp", "protocol": "TCP", "port": 34000},
            {"name": "tcp-other", "protocol": "TCP", "port": 34001},
        ]);
        json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": ports},
            "metadata": {"name": name, "namespace": service.namespace}})
    })
}

fn endpoints(service: &Service) -> Vec<(Arc<str>, Arc<str>, Endpoint)> {
    let of = |(index, port): (usize, &Port)| {
        let endpoint = Endpoint {
            port: if index == 0 { 8080 } else { 0 },
            service_port_name: port.name.clone(),
            ..Endpoint::default()
        };
        (service.hostname.clone(), service.namespace.clone(), endpoint)
    };
    service.ports.iter().enumerate().map(of).collect()
}
