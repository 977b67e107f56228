//! Family `xds`: scenarios of objects and proxies, with the resources that istiod sent to each proxy.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use pilothouse::{
    discovery::{Composer, Resources},
    model::{ConfigSnapshot, Identity, Kind, KindClass, Locality, Mesh, Node},
    push::{PushContext, context::PushInputs},
    registry,
};
use serde_json::{Value, json as value};

use crate::{
    data::{self, Case, Verdict},
    environment,
    generate::json,
    normal::{self, Form, MultiAddress},
    recorded,
};

/// The case of a scenario that is about the objects which are refused.
const REFUSALS: &str = "rejected";

/// One case per proxy of every scenario, and one for the refusals where objects were refused.
pub fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for scenario in data::cases_in("xds", vec![recorded::scenarios(), data::own("xds")], "scenario.yaml") {
        let expected = recorded::expected(&scenario.folder).unwrap();
        let proxies: BTreeSet<String> =
            expected.keys().filter_map(|key| Some(key.split_once('/')?.0.to_string())).collect();
        if expected.contains_key(REFUSALS) {
            let id = format!("{}/{REFUSALS}", scenario.id);
            all.push(Case { id, folder: scenario.folder.clone(), proxy: REFUSALS.into() });
        }
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
    (PushContext::build(PushInputs { mesh, features, configs, registry, ..PushInputs::default() }), multi)
}

pub fn check(case: &Case) -> Verdict {
    let scenario = data::yaml(&case.folder.join("scenario.yaml")).remove(0);
    let expected = recorded::expected(&case.folder).unwrap();
    if case.proxy == REFUSALS {
        return Verdict::of(refusals(&case.folder, &expected.get(REFUSALS).map(recorded::whole).unwrap_or_default()));
    }
    let expected = |name: &str| expected.get(&format!("{}/{name}", case.proxy)).map(recorded::whole);
    if expected("addresses").is_some() {
        return Verdict::NotYet("ztunnel".to_string());
    }
    let (context, multi) = context(&case.folder, &scenario);
    let node = node(&expected("node").unwrap());
    let asked = asked(&scenario, &case.proxy);
    let got = Composer::new(&context, context.view_of(&node), identity(&scenario, &case.proxy, &node).as_ref())
        .all(&asked)
        .unwrap();

    let grpc = node.metadata.generator.as_ref() == "grpc";
    // Where the recording names no refused object, none is.
    let none = Value::Null;
    let refused = recorded::expected(&case.folder).unwrap().get(REFUSALS).map(recorded::whole);
    let mut lines = if refused.is_none() { refusals(&case.folder, &none) } else { Vec::new() };
    let mut file = |name: &str, key: &str, actual: Vec<Value>| {
        let mut wanted = expected(name).unwrap_or_default();
        if grpc {
            without_values_that_grpc_refuses(&mut wanted);
        }
        lines.extend(normal::compare(name, key, &wanted, &actual, Form::Sent(&multi)));
    };
    file("clusters", "name", json(&got.clusters));
    file("endpoints", "clusterName", json(&got.endpoints));
    file("listeners", "name", json(&got.listeners));
    file("routes", "name", json(&got.routes));
    if let Some(wanted) = expected("secrets") {
        lines.extend(normal::compare("secrets", "name", &wanted["resources"], &json(&got.secrets), Form::Sent(&multi)));
    }
    if let Some(wanted) = expected("nds") {
        let tables: Vec<_> = got.name_table.into_iter().collect();
        lines.extend(normal::compare("nds", "name", &wanted, &json(&tables), Form::Sent(&multi)));
    }
    if let Some(wanted) = expected("extensions") {
        let [wanted, got] = [wanted, Value::from(json(&got.extensions))].map(without_hints);
        let got: Vec<Value> = got.as_array().cloned().unwrap_or_default();
        lines.extend(normal::compare("extensions", "name", &wanted, &got, Form::Sent(&multi)));
    }
    Verdict::of(lines)
}

/// Extension configurations without the hints for Istio's agent and the cluster that it replaces. An `Any` without a type says
/// nothing.
fn without_hints(mut all: Value) -> Value {
    for extension in all.as_array_mut().into_iter().flatten() {
        let Some(config) = extension.pointer_mut("/typedConfig/config") else { continue };
        if let Some(config) = config.as_object_mut().filter(|config| config.get("configuration") == Some(&value!({}))) {
            config.remove("configuration");
        }
        let Some(vm) = config.get_mut("vmConfig") else { continue };
        if let Some(uri) = vm.pointer_mut("/code/remote/httpUri").and_then(Value::as_object_mut) {
            uri.remove("cluster");
        }
        if let Some(variables) = vm.get_mut("environmentVariables").and_then(Value::as_object_mut) {
            let own = variables.get_mut("keyValues").and_then(Value::as_object_mut);
            if own.is_some_and(|own| {
                own.retain(|key, _| !key.starts_with("ISTIO_META_WASM_"));
                own.is_empty()
            }) {
                variables.remove("keyValues");
            }
        }
    }
    all
}

fn node(recorded: &Value) -> Node {
    let l = &recorded["locality"];
    let part = |key: &str| -> Arc<str> { l[key].as_str().unwrap_or_default().into() };
    let locality = Locality { region: part("region"), zone: part("zone"), subzone: part("subZone") };
    Node::from_parts(recorded["id"].as_str().unwrap(), recorded["metadata"].clone(), locality).unwrap()
}

/// Whether the case is about an Envoy: neither refusals, nor ztunnel, nor a gRPC program.
pub fn is_envoy(case: &Case) -> bool {
    let expected = recorded::expected(&case.folder).unwrap();
    let node = expected.get(&format!("{}/node", case.proxy)).map(recorded::whole);
    let is_grpc = node.as_ref().is_some_and(|node| node["metadata"]["GENERATOR"] == "grpc");
    node.is_some() && !is_grpc && !expected.contains_key(&format!("{}/addresses", case.proxy))
}

/// The node of a proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As it was recorded.
    Istio,
    /// Without `ISTIO_VERSION`.
    Stock,
    /// Without `ISTIO_VERSION`, and with certificate files.
    StockWithFiles,
}

/// The resources that are sent to the proxy of a case.
pub fn sent(case: &Case, mode: Mode) -> Resources {
    let scenario = data::yaml(&case.folder.join("scenario.yaml")).remove(0);
    let (context, _) = context(&case.folder, &scenario);
    let mut recorded = recorded::whole(&recorded::expected(&case.folder).unwrap()[&format!("{}/node", case.proxy)]);
    if let Some(metadata) = recorded["metadata"].as_object_mut().filter(|_| mode != Mode::Istio) {
        metadata.remove("ISTIO_VERSION");
        for file in ["CERT_CHAIN", "KEY", "ROOT_CERT"].iter().filter(|_| mode == Mode::StockWithFiles) {
            for side in ["CLIENT", "SERVER"] {
                metadata.insert(format!("TLS_{side}_{file}"), format!("/certs/{file}").into());
            }
        }
    }
    let node = node(&recorded);
    let identity = identity(&scenario, &case.proxy, &node);
    Composer::new(&context, context.view_of(&node), identity.as_ref()).all(&[]).unwrap()
}

/// Messages as JSON.
pub use crate::generate::json as shown;

/// The objects that are refused, compared with those that Istio's validation refused. The texts are free.
fn refusals(folder: &Path, recorded: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let recorded: BTreeSet<_> = recorded
        .as_array()
        .into_iter()
        .flatten()
        .map(|r| (text(&r["Kind"]), text(&r["Namespace"]), text(&r["Name"])))
        .collect();
    let is_refused = |document: &&Value| {
        let kind = Kind::parse(&text(&document["apiVersion"]), &text(&document["kind"]));
        let unknown = kind.is_none() && text(&document["apiVersion"]).contains("istio.io/");
        let istio = unknown || kind.is_some_and(|kind| kind.class() == KindClass::Istio);
        istio && environment::configs(std::slice::from_ref(*document), "", "", true).0.is_empty()
    };
    let documents = data::yaml(&folder.join("config.yaml"));
    let of = |d: &Value| (text(&d["kind"]), text(&d["metadata"]["namespace"]), text(&d["metadata"]["name"]));
    let refused: BTreeSet<_> = documents.iter().filter(is_refused).map(of).collect();
    let taken =
        recorded.difference(&refused).map(|(kind, ns, name)| format!("{kind} {ns}/{name} is taken, Istio refuses it"));
    let too_much =
        refused.difference(&recorded).map(|(kind, ns, name)| format!("{kind} {ns}/{name} is refused, Istio takes it"));
    taken.chain(too_much).collect()
}

/// Istio sends proxyless gRPC domains that end in a dot, over which gRPC-Java fails the whole channel, and prefixes in a form
/// that gRPC does not know. Neither is sent here.
fn without_values_that_grpc_refuses(routes: &mut Value) {
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

/// The listeners that a proxyless gRPC client requests: its targets, and a listener for each server.
fn asked(scenario: &Value, proxy: &str) -> Vec<String> {
    let proxies = scenario["proxies"].as_array().cloned().unwrap_or_default();
    let grpc = proxies.iter().find(|p| p["name"] == proxy).map(|p| p["grpc"].clone()).unwrap_or_default();
    let list = |key: &str| -> Vec<String> {
        grpc[key].as_array().into_iter().flatten().filter_map(|v| v.as_str().map(String::from)).collect()
    };
    let servers = list("servers").into_iter().map(|s| format!("xds.istio.io/grpc/lds/inbound/{s}"));
    list("targets").into_iter().chain(servers).collect()
}
