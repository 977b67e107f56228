//! Family `authorization`: policies in, HTTP or network filters out.

use std::{path::PathBuf, sync::Arc};

use pilothouse::{
    generate::authorization::Filters,
    model::{ConfigSnapshot, Features, Mesh, RegistrySnapshot, Service},
    proto::{
        envoy::{config::listener::v3::Filter, extensions::filters::network::http_connection_manager::v3::HttpFilter},
        from_json,
    },
    push::{
        PushContext,
        context::PushInputs,
        policies::{AuthorizationPolicies, PolicyIndex},
    },
};
use prost::{Message, Name};
use serde_json::{Value, json};

use crate::{
    data::{self, Case, Verdict},
    environment, generate, normal,
};

fn description(folder: &std::path::Path) -> Value {
    data::yaml(&folder.join("cases.yaml")).into_iter().next().unwrap_or(Value::Null)
}

/// One case for each entry of `cases.yaml`; its number among the entries tells it from one of the same name.
pub fn cases() -> Vec<Case> {
    let folders: Vec<PathBuf> = data::root().into_iter().map(|root| root.join("authorization")).collect();
    let mut all = Vec::new();
    for folder in folders {
        for case in description(&folder)["cases"].as_array().into_iter().flatten() {
            let of = |key: &str| case[key].as_str().unwrap_or_default().to_string();
            let (name, protocol) = (of("name"), of("protocol"));
            all.push(Case { id: format!("authorization/{protocol}/{name}"), folder: folder.clone(), proxy: name });
        }
    }
    all
}

pub fn check(case: &Case) -> Verdict {
    let description = description(&case.folder);
    let is_it = |c: &&Value| case.id == format!("authorization/{}/{}", text(c, "protocol"), text(c, "name"));
    let entry = description["cases"].as_array().into_iter().flatten().find(is_it).unwrap();
    let context = context(&description, entry);
    let input = data::yaml(&case.folder.join(text(entry, "input")));
    let (policies, _) = environment::configs(&input, "", "", false);
    let configs = ConfigSnapshot::of(policies);
    let inputs = PushInputs { configs, ..context.inputs.clone() };
    // The proxy of these cases is of no type: a sidecar has the same policies.
    let mut proxy = description["proxy"].clone();
    proxy["type"] = "sidecar".into();
    let view = environment::view(&context, &proxy);
    let policies: AuthorizationPolicies = PolicyIndex::build(&inputs).authorization(&view);
    let filters = Filters::of(&context, &policies);
    let wanted: Vec<Value> = entry["expected"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|file| data::yaml(&case.folder.join(file.as_str().unwrap())))
        .collect();
    let custom = entry["customBuilder"].as_bool().unwrap();
    let (wanted, got) = if text(entry, "protocol") == "http" {
        let got = if custom { &filters.custom_http } else { &filters.http };
        (messages::<HttpFilter>(&wanted), generate::json(got))
    } else {
        let got = if custom { &filters.custom_tcp } else { &filters.tcp };
        (messages::<Filter>(&wanted), generate::json(got))
    };
    let difference = normal::first_difference("filters", &Value::Array(wanted), &Value::Array(got));
    Verdict::of(difference.into_iter().collect())
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The recorded filters as the messages that they stand for.
fn messages<M: Message + Name + Default>(filters: &[Value]) -> Vec<Value> {
    let read = |filter: &Value| from_json::<M>(filter, true).unwrap_or_else(|e| panic!("{filter}: {e}"));
    generate::json(&filters.iter().map(read).collect::<Vec<M>>())
}

fn context(description: &Value, entry: &Value) -> PushContext {
    let mut mesh = description["meshConfigs"][text(entry, "meshConfig")].clone();
    if !mesh.is_object() {
        mesh = json!({});
    }
    let mut mesh = Mesh::from_values(&mesh, &Value::Null, "cluster.local", "Kubernetes").unwrap();
    let aliases = entry["trustDomainAliases"].as_array().unwrap();
    let config = Arc::make_mut(&mut mesh.config);
    config.root_namespace = String::new();
    config.trust_domain = text(entry, "trustDomain").to_string();
    config.trust_domain_aliases = aliases.iter().map(|a| a.as_str().unwrap().to_string()).collect();
    let service = |service: &Value| {
        let (host, namespace) = (text(service, "hostname"), text(service, "namespace"));
        Arc::new(Service { hostname: host.into(), namespace: namespace.into(), ..Service::default() }.stamped())
    };
    let services = description["services"].as_array().unwrap().iter().map(service).collect();
    let registry = RegistrySnapshot { services: Arc::new(services), ..RegistrySnapshot::default() };
    PushContext::build(PushInputs {
        mesh: Arc::new(mesh),
        features: Arc::new(Features::default()),
        registry,
        ..PushInputs::default()
    })
}
