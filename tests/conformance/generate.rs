//! Family `generate`: environment and proxy in, listeners, clusters and routes out.

use pilothouse::{discovery::Composer, proto::to_json};
use serde_json::Value;

use crate::{
    data::{self, Case, Verdict},
    environment,
    normal::{self, Form},
};

pub fn check(case: &Case) -> Verdict {
    let description = data::json(&case.folder.join("case.json"));
    let context = environment::context(&case.folder, &description, environment::Ages::InOrder);
    let composer = Composer::new(&context, environment::view(&context, &description["proxy"]), None);
    let expected = |file: &str| {
        let path = case.folder.join("expected").join(file);
        path.exists().then(|| data::json(&path))
    };
    let mut lines = Vec::new();
    if let Some(wanted) = expected("clusters.json") {
        let got = composer.clusters().unwrap();
        lines.extend(normal::compare("cluster", "name", &wanted, &json(&got), Form::Generated));
    }
    if let Some(wanted) = expected("listeners.json") {
        let got = composer.listeners().unwrap();
        lines.extend(normal::compare("listener", "name", &wanted, &json(&got), Form::Generated));
    }
    if let Some(wanted) = expected("routes.json") {
        let got: Vec<_> = wanted
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|r| composer.route_configuration(r["name"].as_str().unwrap_or_default()).unwrap())
            .collect();
        lines.extend(normal::compare("route", "name", &wanted, &json(&got), Form::Generated));
    }
    Verdict::of(lines)
}

/// Messages as proto3 JSON.
pub fn json<M: prost::Message + prost::Name>(messages: &[M]) -> Vec<Value> {
    messages.iter().map(|m| to_json(m).unwrap_or_else(|e| Value::from(e.to_string()))).collect()
}
