//! Small objects for the tests. JSON is YAML.

use serde_json::{Value, json};

/// One document of `networking.istio.io/v1` in namespace `shop`.
pub fn object(kind: &str, name: &str, spec: &Value) -> String {
    document("networking.istio.io/v1", kind, name, spec)
}

/// One document of an API version in namespace `shop`.
pub fn document(version: &str, kind: &str, name: &str, spec: &Value) -> String {
    document_in("shop", version, kind, name, spec)
}

/// One document of an API version.
pub fn document_in(namespace: &str, version: &str, kind: &str, name: &str, spec: &Value) -> String {
    let metadata = json!({"name": name, "namespace": namespace});
    let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
    format!("---\n{object}\n")
}

/// An endpoint on this machine: port, version label, locality.
pub type Endpoint<'a> = (u16, &'a str, &'a str);

/// A ServiceEntry of one port (`protocol`, which is also the port's name in lower case) with static endpoints.
pub fn service(host: &str, port: u16, protocol: &str, endpoints: &[Endpoint<'_>]) -> String {
    let name = protocol.to_lowercase();
    let endpoints: Vec<_> = endpoints
        .iter()
        .map(|(port, version, locality)| {
            json!({"address": "127.0.0.1", "ports": {&name: port}, "labels": {"version": version}, "locality": locality})
        })
        .collect();
    object(
        "ServiceEntry",
        &host.replace('.', "-"),
        &json!({
            "hosts": [host], "location": "MESH_INTERNAL", "resolution": "STATIC",
            "ports": [{"number": port, "name": name, "protocol": protocol}], "endpoints": endpoints,
        }),
    )
}

/// A Gateway for routers labelled `app: edge`, with one HTTP server for all hosts.
pub fn gateway(port: u16) -> String {
    gateway_of("edge", port)
}

/// A Gateway of this name, for routers whose label `app` says the same.
pub fn gateway_of(app: &str, port: u16) -> String {
    object(
        "Gateway",
        app,
        &json!({
            "selector": {"app": app},
            "servers": [{"port": {"number": port, "name": "http", "protocol": "HTTP"}, "hosts": ["*"]}],
        }),
    )
}

/// Subsets `v1` and `v2` of a host.
pub fn subsets(host: &str) -> String {
    object(
        "DestinationRule",
        &host.replace('.', "-"),
        &json!({
            "host": host,
            "subsets": [{"name": "v1", "labels": {"version": "v1"}}, {"name": "v2", "labels": {"version": "v2"}}],
        }),
    )
}

/// A destination: a subset of a host.
pub fn to(host: &str, subset: &str) -> Value {
    json!({"destination": {"host": host, "subset": subset}})
}
