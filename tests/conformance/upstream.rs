//! Family `gateway-api-upstream`: Gateway API's own tests, in two parts. Statuses are asked of the translation, for every test
//! of every run. Requests are sent through a real Envoy for each Gateway (or beside each client of the mesh tests), which gets
//! its config from a running pilothouse.

mod ask;
mod backend;
mod certificates;
mod changes;
mod client;
mod cluster;
mod compare;
mod demands;
mod live;
mod proxies;
mod report;
mod requests;
mod retries;
mod stage;

use std::path::Path;

use serde_json::Value;

pub use demands::check;
pub use live::run as run_through_the_api_server;
pub use requests::run;

use self::changes::Changing;
use crate::data::{self, Case};

/// One file of demands is one case.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for folder in data::folders("gateway-api-upstream") {
        for entry in std::fs::read_dir(folder.join("expected")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            cases.push(Case { id: format!("gateway-api-upstream/{name}"), folder: folder.clone(), proxy: name });
        }
    }
    cases.sort_by(|a, b| a.id.cmp(&b.id));
    cases
}

/// The demands of a case.
fn test(case: &Case) -> Value {
    let file = case.folder.join("expected").join(format!("{}.yaml", case.proxy));
    data::yaml(&file).into_iter().next().unwrap()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The manifests that tests of its kind rest on with the certificates, and those of the test.
fn manifests_of(case: &Case, test: &Value) -> Changing {
    let of_mesh = list(&test["features"]).any(|f| f == "Mesh");
    let base = manifests(&case.folder.join(if of_mesh { "mesh/manifests.yaml" } else { "base/manifests.yaml" }));
    let own = list(&test["manifests"]).flat_map(|file| manifests(&case.folder.join(text(file)))).collect();
    Changing::new(test, base.into_iter().chain(certificates::documents()).collect(), own)
}

fn manifests(path: &Path) -> Vec<Value> {
    data::yaml(path).into_iter().map(with_class).collect()
}

/// Manifests leave the names of the class and of its controller open.
fn with_class(value: Value) -> Value {
    match value {
        Value::String(text) => {
            let text = text.replace("{GATEWAY_CLASS_NAME}", "istio");
            text.replace("{GATEWAY_CONTROLLER_NAME}", "istio.io/gateway-controller").into()
        }
        Value::Array(list) => list.into_iter().map(with_class).collect(),
        Value::Object(map) => map.into_iter().map(|(k, v)| (k, with_class(v))).collect(),
        other => other,
    }
}
