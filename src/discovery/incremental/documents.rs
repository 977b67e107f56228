//! Documents of the random worlds, in few words.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use crate::model::{Config, Origin, decode};

/// The object of a document.
pub(super) fn read(document: &Value) -> Arc<Config> {
    Arc::new(decode::from_value(document, Origin::default()).unwrap_or_else(|e| panic!("{document}: {e}")))
}

/// An object at a path `API/Kind namespace/name`.
pub(super) fn document(kind: &str, name: &str, spec: Value) -> Value {
    let (namespace, name) = name.split_once('/').expect("namespace/name");
    let api = match kind {
        "PeerAuthentication" | "AuthorizationPolicy" | "RequestAuthentication" => "security.istio.io/v1",
        "Telemetry" => "telemetry.istio.io/v1",
        "EnvoyFilter" => "networking.istio.io/v1alpha3",
        "HTTPRoute" | "KubernetesGateway" => "gateway.networking.k8s.io/v1",
        "ReferenceGrant" => "gateway.networking.k8s.io/v1beta1",
        "Ingress" => "networking.k8s.io/v1",
        "EndpointSlice" => "discovery.k8s.io/v1",
        "Service" | "Pod" | "Namespace" | "Secret" => "v1",
        _ => "networking.istio.io/v1",
    };
    let kind = if kind == "KubernetesGateway" { "Gateway" } else { kind };
    let mut document = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}});
    if !namespace.is_empty() {
        document["metadata"]["namespace"] = namespace.into();
    }
    match kind {
        "EndpointSlice" | "Secret" => {
            for (key, value) in spec.as_object().into_iter().flatten() {
                document[key] = value.clone();
            }
        }
        _ => document["spec"] = spec,
    }
    document
}

/// The document with this in its metadata.
pub(super) fn with(mut document: Value, field: &str, value: Value) -> Value {
    document["metadata"][field] = value;
    document
}

pub(super) fn older(document: Value) -> Value {
    with(document, "creationTimestamp", json!("2020-01-01T00:00:00Z"))
}

pub(super) fn exported(document: Value, to: &str) -> Value {
    with(document, "annotations", json!({"networking.istio.io/exportTo": to}))
}

pub(super) fn service(name: &str, spec: Value) -> Value {
    document("Service", name, spec)
}

pub(super) fn ports() -> Value {
    json!([{"name": "http", "port": 80, "targetPort": 8080}, {"name": "tcp", "port": 90}])
}

/// A slice of a Service: addresses, each with a pod, whether they are ready.
pub(super) fn slice(name: &str, service: &str, endpoints: &[(&str, &str, bool)]) -> Value {
    let endpoint = |(address, pod, ready): &(&str, &str, bool)| {
        let mut endpoint = json!({"addresses": [address], "conditions": {"ready": ready}});
        if !pod.is_empty() {
            endpoint["targetRef"] = json!({"kind": "Pod", "name": pod});
        }
        endpoint
    };
    let spec = json!({
        "addressType": "IPv4", "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "http", "port": 8080}, {"name": "tcp", "port": 90}],
    });
    with(document("EndpointSlice", name, spec), "labels", json!({"kubernetes.io/service-name": service}))
}

pub(super) fn pod(name: &str, ip: &str, labels: Value, account: &str) -> Value {
    let spec = json!({"serviceAccountName": account, "containers": [{"name": "c", "ports": [{"containerPort": 8080, "name": "http"}]}]});
    let mut pod = with(document("Pod", name, spec), "labels", labels);
    pod["status"] = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": "True"}]});
    pod
}

/// A ServiceEntry with written endpoints: address, version and service account.
pub(super) fn entry(name: &str, host: &str, extra: Value, endpoints: &[(&str, &str, &str)]) -> Value {
    let endpoint = |(address, version, account): &(&str, &str, &str)| {
        json!({"address": address, "labels": {"version": version, "app": "one", "security.istio.io/tlsMode": "istio"},
            "serviceAccount": account, "locality": "r/z1"})
    };
    let mut spec = json!({
        "hosts": [host], "location": "MESH_INTERNAL", "resolution": "STATIC",
        "ports": [{"number": 80, "name": "http", "protocol": "HTTP", "targetPort": 8080}, {"number": 90, "name": "tcp", "protocol": "TCP"}],
    });
    if !endpoints.is_empty() {
        spec["endpoints"] = endpoints.iter().map(endpoint).collect();
    }
    for (key, value) in extra.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    document("ServiceEntry", name, spec)
}

pub(super) fn workload(name: &str, address: &str, labels: Value) -> Value {
    document("WorkloadEntry", name, json!({"address": address, "labels": labels, "serviceAccount": "w"}))
}

pub(super) fn to(host: &str) -> Value {
    json!([{"destination": {"host": host}}])
}

pub(super) fn route(name: &str, spec: Value) -> Value {
    document("VirtualService", name, spec)
}

pub(super) fn rule(name: &str, spec: Value) -> Value {
    document("DestinationRule", name, spec)
}

pub(super) fn peer(name: &str, spec: Value) -> Value {
    document("PeerAuthentication", name, spec)
}

pub(super) fn gateway(name: &str, servers: Value) -> Value {
    document("Gateway", name, json!({"selector": {"istio": "gw"}, "servers": servers}))
}

pub(super) fn server(port: u32, protocol: &str, credential: &str) -> Value {
    let mut server =
        json!({"port": {"number": port, "name": protocol.to_lowercase(), "protocol": protocol}, "hosts": ["*"]});
    if !credential.is_empty() {
        server["tls"] = json!({"mode": "MUTUAL", "credentialName": credential});
    }
    server
}

pub(super) fn secret(name: &str, pair: usize) -> Value {
    static PAIRS: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
        let made = || rcgen::generate_simple_self_signed(["web.test".to_string()]).expect("a certificate");
        (0..2).map(|_| made()).map(|m| (m.cert.pem(), m.signing_key.serialize_pem())).collect()
    });
    let (certificate, key) = &PAIRS[pair];
    document("Secret", name, json!({"stringData": {"tls.crt": certificate, "tls.key": key, "ca.crt": certificate}}))
}

pub(super) fn http_route(name: &str, parent: Value, backend: &str) -> Value {
    let spec = json!({"parentRefs": [parent], "rules": [{"backendRefs": [{"name": backend, "port": 80}]}]});
    document("HTTPRoute", name, spec)
}

pub(super) fn selecting(app: &str) -> Value {
    json!({"matchLabels": {"app": app}})
}

/// An EnvoyFilter that patches clusters, listeners and routes of all directions.
pub(super) fn patches(name: &str, mut spec: Value, timeout: &str) -> Value {
    let patch = |target: &str, operation: &str, condition: Value, value: Value| json!({"applyTo": target, "match": condition, "patch": {"operation": operation, "value": value}});
    let lua = json!({"name": "lua", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
        "default_source_code": {"inline_string": format!("-- {timeout}")},
    }});
    let to_http =
        json!({"listener": {"filterChain": {"filter": {"name": "envoy.filters.network.http_connection_manager"}}}});
    spec["configPatches"] = json!([
        patch("CLUSTER", "MERGE", json!({}), json!({"connect_timeout": timeout})),
        patch("CLUSTER", "ADD", json!({}), json!({"name": "added", "connect_timeout": timeout})),
        patch("HTTP_FILTER", "INSERT_FIRST", to_http, lua),
        patch(
            "HTTP_ROUTE",
            "MERGE",
            json!({"routeConfiguration": {"vhost": {"route": {"action": "ROUTE"}}}}),
            json!({"route": {"timeout": timeout}})
        ),
    ]);
    document("EnvoyFilter", name, spec)
}
