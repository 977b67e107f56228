//! Family `ingress`: Ingress objects in, Istio Gateways and VirtualServices out; and which Ingresses are ours at all.

use std::{path::Path, sync::Arc};

use pilothouse::{
    model::{Config, ConfigSnapshot, Labels, Mesh, Origin, PushInputs, decode},
    proto::{mesh::mesh_config::IngressControllerMode, to_json},
    translate::{
        Translation,
        ingress::{IngressClassOf, is_taken},
    },
};
use serde_json::{Value, json};

use crate::data::{self, Case, Verdict};

/// A case per folder, and one per row of `class-selection.yaml`.
pub fn cases() -> Vec<Case> {
    let mut all = data::cases("ingress", "input.yaml");
    for folder in data::folders("ingress") {
        let table = data::yaml(&folder.join("class-selection.yaml"));
        let rows = table.iter().flat_map(|t| t["cases"].as_array().into_iter().flatten());
        for (number, row) in rows.enumerate() {
            let id = format!("ingress/class-selection/{number:02}");
            all.push(Case { id, folder: folder.clone(), proxy: row.to_string() });
        }
    }
    all
}

pub fn check(case: &Case) -> Verdict {
    if case.proxy.is_empty() { translation(&case.folder) } else { selection(&case.proxy) }
}

/// The mesh of these recordings has nothing set but the mode.
fn mesh(domain: &str) -> Arc<Mesh> {
    let settings = json!({"ingressControllerMode": "DEFAULT", "ingressClass": null, "ingressService": null});
    Arc::new(Mesh::from_values(&settings, &Value::Null, domain, "Kubernetes").unwrap())
}

fn translation(folder: &Path) -> Verdict {
    let domain = std::fs::read_to_string(folder.join("domain.txt")).unwrap_or_default();
    let read = |mut document: Value| -> Config {
        without_null_path_types(&mut document);
        decode::from_value(&document, Origin::default()).unwrap()
    };
    let configs = ConfigSnapshot::of(data::yaml(&folder.join("input.yaml")).into_iter().map(read).map(Arc::new));
    let inputs = PushInputs { mesh: mesh(domain.trim()), configs, ..PushInputs::default() };
    let translation = Translation::build(inputs);
    let got = translation.gateways.iter().chain(&translation.virtual_services);
    let mut got: Vec<Value> = got.map(|c| written(c)).collect();
    let mut wanted: Vec<Value> = data::yaml(&folder.join("expected.yaml"))
        .iter()
        .map(|d| written(&decode::from_value(d, Origin::default()).unwrap()))
        .collect();
    let order = |v: &Value| (v["kind"].to_string(), v["name"].to_string());
    got.sort_by_key(order);
    wanted.sort_by_key(order);
    let mut lines: Vec<String> = wanted.iter().filter(|w| !got.contains(w)).map(|w| format!("missing {w}")).collect();
    lines.extend(got.iter().filter(|g| !wanted.contains(g)).map(|g| format!("too many {g}")));
    Verdict::of(lines)
}

/// The recordings write `pathType: null` for an Ingress of the time when the field could be left out.
fn without_null_path_types(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, value| key != "pathType" || !value.is_null());
            map.values_mut().for_each(without_null_path_types);
        }
        Value::Array(list) => list.iter_mut().for_each(without_null_path_types),
        _ => {}
    }
}

fn written(config: &Config) -> Value {
    let gateway = config.gateway().map(|s| to_json(s).unwrap());
    let spec = gateway.or_else(|| config.virtual_service().map(|s| to_json(s).unwrap()));
    json!({"kind": config.kind().as_str(), "namespace": &*config.meta.namespace, "name": &*config.meta.name,
        "annotations": config.meta.annotations, "spec": spec})
}

fn selection(row: &str) -> Verdict {
    let row: Value = serde_json::from_str(row).unwrap();
    let mode = row["ingressControllerMode"].as_str().and_then(IngressControllerMode::from_str_name);
    let mut mesh = (*Mesh::default().config).clone();
    mesh.ingress_controller_mode = mode.map_or(-1, i32::from);
    let annotation = row["annotation"].as_str().unwrap_or_default();
    let mut annotations = Labels::new();
    if !annotation.is_empty() {
        annotations.insert("kubernetes.io/ingress.class".to_string(), annotation.to_string());
    }
    let class = row["ingressClass"]["controller"].as_str().map(|controller| {
        let class = json!({"metadata": {"name": row["ingressClass"]["name"]}, "spec": {"controller": controller}});
        serde_json::from_value(class).unwrap()
    });
    let got = is_taken(&mesh, &IngressClassOf { annotations: &annotations, class: class.as_ref() });
    let wanted = row["processed"] == true;
    Verdict::of(if got == wanted { Vec::new() } else { vec![format!("taken: expected {wanted} / got {got}: {row}")] })
}
