//! Family `service-apis`: objects of `networking.x-k8s.io` in, Istio objects out, and no status.

use std::sync::Arc;

use pilothouse::{
    model::{ConfigSnapshot, Mesh, Origin, PushInputs, decode},
    translate::Translation,
};
use serde_json::Value;

use crate::{
    data::{self, Case, Verdict},
    gateway_api::{compare, objects, recorded, spec_of},
};

pub fn check(case: &Case) -> Verdict {
    let documents = data::yaml(&case.folder.join("input.yaml"));
    let configs = documents.iter().map(|d| Arc::new(decode::from_value(d, Origin::default()).unwrap()));
    let mesh = Arc::new(Mesh::from_values(&Value::Null, &Value::Null, "cluster.local", "Kubernetes").unwrap());
    let translation =
        Translation::build(PushInputs { mesh, configs: ConfigSnapshot::of(configs), ..PushInputs::default() });
    let mut differences = compare("object", &objects(&translation), &recorded(case, "expected.yaml", spec_of));
    differences.extend(translation.reports.iter().map(|r| format!("reported: {}: {}", r.key, r.message)));
    differences.extend(translation.statuses.keys().map(|key| format!("{key} has a status")));
    Verdict::of(differences)
}
