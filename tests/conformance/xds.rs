//! Family `xds`: scenarios of objects and proxies, with what istiod sent to each proxy.

use std::sync::Arc;

use pilothouse::{
    discovery::Composer,
    model::{ConfigSnapshot, Identity, Locality, Mesh, Node},
    push::{PushContext, context::PushInputs},
    registry,
};
use serde_json::Value;

use crate::{
    data::{self, Case, Verdict},
    environment,
    generate::json,
    normal::{self, MultiAddress},
};

/// One case per proxy of every scenario.
pub fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for scenario in data::cases("xds", "scenario.yaml") {
        let expected = scenario.folder.join("expected");
        let mut proxies: Vec<String> = std::fs::read_dir(&expected)
            .into_iter()
            .flatten()
            .map(|e| e.unwrap())
            .filter(|e| e.path().is_dir())
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect();
        proxies.sort();
        for proxy in proxies {
            all.push(Case { id: format!("{}/{proxy}", scenario.id), folder: scenario.folder.clone(), proxy });
        }
    }
    all
}

fn context(folder: &std::path::Path, scenario: &Value) -> (PushContext, MultiAddress) {
    let cluster = scenario["cluster"].as_str().unwrap_or("Kubernetes");
    let networks = match &scenario["networks"] {
        Value::Null => Value::Null,
        networks => serde_json::json!({ "networks": networks }),
    };
    let mesh = Arc::new(Mesh::from_values(&scenario["mesh"], &networks, "cluster.local", cluster).unwrap());
    let features = Arc::new(environment::features(&scenario["env"]));
    let documents = data::yaml(&folder.join("config.yaml"));
    let multi = documents
        .iter()
        .filter(|d| d["kind"] == "ServiceEntry" && d["spec"]["addresses"].as_array().is_some_and(|a| a.len() > 1))
        .flat_map(|d| d["spec"]["hosts"].as_array().cloned().unwrap_or_default())
        .filter_map(|h| h.as_str().map(String::from))
        .collect();
    let (mut all, _) = environment::configs(&documents, "", "", true);
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        let Some(remote) = name.strip_prefix("config.").and_then(|r| r.strip_suffix(".yaml")) else { continue };
        if !remote.is_empty() && remote != "yaml" {
            let (objects, _) = environment::configs(&data::yaml(&folder.join(&name)), remote, "", true);
            all.extend(objects.into_iter().filter(|c| c.kind().is_read_of_remote_clusters()));
        }
    }
    let configs = ConfigSnapshot::of(all);
    let registry = registry::ServiceEntryStore::of(mesh.clone(), features.clone(), &configs).snapshot();
    (PushContext::build(PushInputs { mesh, features, configs, registry }), multi)
}

pub fn check(case: &Case) -> Verdict {
    let scenario = data::yaml(&case.folder.join("scenario.yaml")).remove(0);
    let expected = case.folder.join("expected").join(&case.proxy);
    if expected.join("addresses.json").exists() {
        return Verdict::NotYet("ztunnel".to_string());
    }
    let (context, multi) = context(&case.folder, &scenario);
    let node = data::json(&expected.join("node.json"));
    let l = &node["locality"];
    let part = |key: &str| -> Arc<str> { l[key].as_str().unwrap_or_default().into() };
    let locality = Locality { region: part("region"), zone: part("zone"), subzone: part("subZone") };
    let node = Node::from_parts(node["id"].as_str().unwrap(), node["metadata"].clone(), locality).unwrap();
    let asked = asked(&scenario, &case.proxy);
    let got = Composer::new(&context, context.view_of(&node), identity(&scenario, &case.proxy, &node).as_ref())
        .all(&asked)
        .unwrap();

    let grpc = node.metadata.generator.as_ref() == "grpc";
    let mut lines = Vec::new();
    let mut file = |name: &str, key: &str, actual: Vec<Value>| {
        let mut wanted = data::json(&expected.join(format!("{name}.json")));
        if grpc {
            without_what_grpc_refuses(&mut wanted);
        }
        lines.extend(normal::compare(name, key, &wanted, &actual, &multi));
    };
    file("clusters", "name", json(&got.clusters));
    file("endpoints", "clusterName", json(&got.endpoints));
    file("listeners", "name", json(&got.listeners));
    file("routes", "name", json(&got.routes));
    if expected.join("secrets.json").exists() {
        let wanted = data::json(&expected.join("secrets.json"))["resources"].clone();
        lines.extend(normal::compare("secrets", "name", &wanted, &json(&got.secrets), &multi));
    }
    if expected.join("nds.json").exists() {
        let wanted = data::json(&expected.join("nds.json"));
        let tables: Vec<_> = got.name_table.into_iter().collect();
        lines.extend(normal::compare("nds", "name", &wanted, &json(&tables), &multi));
    }
    if expected.join("extensions.json").exists() {
        lines.push("extensions: ECDS is not built yet".to_string());
    }
    Verdict::of(lines)
}

/// Istio sends proxyless gRPC domains that end in a dot, over which gRPC-Java fails the whole channel, and prefixes in a form
/// that gRPC does not know. Neither is sent here.
fn without_what_grpc_refuses(routes: &mut Value) {
    let hosts = routes.as_array_mut().into_iter().flatten().filter_map(|r| r.get_mut("virtualHosts")?.as_array_mut());
    for host in hosts.flatten() {
        if let Some(domains) = host.get_mut("domains").and_then(Value::as_array_mut) {
            domains.retain(|d| !d.as_str().is_some_and(|d| d.ends_with('.') || d.contains(".:")));
        }
        for route in host.get_mut("routes").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(of) = route.get_mut("match").and_then(Value::as_object_mut) else { continue };
            if let Some(Value::String(prefix)) = of.remove("pathSeparatedPrefix") {
                of.insert("prefix".to_string(), format!("{prefix}/").into());
            }
        }
    }
}

/// The identity that the recording's client had proved.
fn identity(scenario: &Value, proxy: &str, node: &Node) -> Option<Identity> {
    let proxies = scenario["proxies"].as_array()?;
    let described = proxies.iter().find(|p| p["name"] == proxy)?;
    let account = described["serviceAccount"].as_str().unwrap_or("default");
    let default = format!("spiffe://cluster.local/ns/{}/sa/{account}", node.namespace);
    Identity::parse(described["identity"].as_str().unwrap_or(&default))
}

/// What a proxyless gRPC client asks for: its targets, and a listener for each server.
fn asked(scenario: &Value, proxy: &str) -> Vec<String> {
    let proxies = scenario["proxies"].as_array().cloned().unwrap_or_default();
    let grpc = proxies.iter().find(|p| p["name"] == proxy).map(|p| p["grpc"].clone()).unwrap_or_default();
    let list = |key: &str| -> Vec<String> {
        grpc[key].as_array().into_iter().flatten().filter_map(|v| v.as_str().map(String::from)).collect()
    };
    let servers = list("servers").into_iter().map(|s| format!("xds.istio.io/grpc/lds/inbound/{s}"));
    list("targets").into_iter().chain(servers).collect()
}
