//! `describe` names the objects that are in force for a service or a workload, and a contradiction of TLS between them.

use std::fs;

use serde_json::{Value, json};

use crate::{
    confirm::aside,
    proxy::Proxies,
    proxy_config::{refusal, said},
    stage::{end, start, until},
};

fn object(group: &str, kind: &str, namespace: &str, name: &str, spec: &Value) -> String {
    let metadata = json!({"name": name, "namespace": namespace});
    let document =
        json!({"apiVersion": format!("{group}.istio.io/v1"), "kind": kind, "metadata": metadata, "spec": spec});
    format!("---\n{document}\n")
}

/// A service of two versions; clients are told to send plain text, and the workloads want mutual TLS.
pub fn mesh() -> String {
    let endpoint = |ip: &str, version: &str| {
        json!({"address": ip, "ports": {"http": 8080},
               "labels": {"app": "web", "version": version, "security.istio.io/tlsMode": "istio"}})
    };
    let to = json!({"destination": {"host": "web.example", "subset": "v1"}});
    let route = json!([{"route": [to]}]);
    let twice = json!({"hosts": ["twice.example"], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "resolution": "DNS"});
    [
        object(
            "networking",
            "ServiceEntry",
            "shop",
            "web",
            &json!({
            "hosts": ["web.example"], "location": "MESH_INTERNAL", "resolution": "STATIC",
            "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
            "endpoints": [endpoint("10.0.0.1", "v1"), endpoint("10.0.0.2", "v2")]}),
        ),
        object(
            "networking",
            "DestinationRule",
            "shop",
            "web",
            &json!({
            "host": "web.example", "trafficPolicy": {"tls": {"mode": "DISABLE"}},
            "subsets": [{"name": "v1", "labels": {"version": "v1"}}]}),
        ),
        object(
            "networking",
            "VirtualService",
            "shop",
            "web",
            &json!({
            "hosts": ["web.example"], "gateways": ["mesh", "edge"], "http": route}),
        ),
        object(
            "networking",
            "Gateway",
            "shop",
            "edge",
            &json!({
            "selector": {"app": "edge"},
            "servers": [{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["web.example"]}]}),
        ),
        object("networking", "ServiceEntry", "a", "twice", &twice),
        object("networking", "ServiceEntry", "b", "twice", &twice),
        object("security", "PeerAuthentication", "shop", "strict", &json!({"mtls": {"mode": "STRICT"}})),
        object(
            "security",
            "PeerAuthentication",
            "shop",
            "v2",
            &json!({
            "selector": {"matchLabels": {"version": "v2"}}, "portLevelMtls": {"8080": {"mode": "PERMISSIVE"}}}),
        ),
        object(
            "security",
            "AuthorizationPolicy",
            "shop",
            "deny-v1",
            &json!({
            "selector": {"matchLabels": {"version": "v1"}}, "action": "DENY", "rules": [{}]}),
        ),
        object("security", "RequestAuthentication", "istio-system", "tokens", &json!({})),
        object("security", "AuthorizationPolicy", "other", "elsewhere", &json!({"rules": [{}]})),
    ]
    .concat()
}

#[actix::test]
async fn the_objects_in_force_are_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("mesh.yaml"), mesh()).unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| !c.inputs.registry.services.is_empty()).await;
    let mut proxies = Proxies::connect(running.addresses.grpc).await;
    proxies.until("web.example").await;
    let http = running.addresses.http.to_string();
    let proxy = running.state.connections().first().unwrap().node.id.to_string();
    aside(move || {
        let describe = |subject: &str, name: &str, more: &[&str]| {
            said(&[&["describe", subject, name, "--http-addr", &http], more].concat())
        };
        let text = describe("service", "web.shop", &[]);
        assert_eq!(describe("svc", "web.example", &[]), text, "by host");
        for line in [
            "ServiceEntry: web.shop",
            "   Host: web.example",
            "   Port: http 80/HTTP, clients send plain text (DestinationRule web.shop)",
            "   Endpoints: 2 of 2 healthy",
            "DestinationRule: web.shop for web.example",
            "   Subsets: v1",
            "Gateway: edge.shop, by VirtualService web.shop",
            "   Server: HTTP 80 for web.example",
            "Workload: web-0.shop",
            "   Port: 8080, mutual TLS STRICT",
            "   Port: 8080, mutual TLS PERMISSIVE",
            "Warning: port 80: clients send no mutual TLS, and web-0.shop accepts nothing else",
        ] {
            assert!(text.lines().any(|l| l == line), "{line:?} in\n{text}");
        }
        assert_eq!(text.matches("Warning").count(), 1, "{text}");
        let document: Value = serde_json::from_str(&describe("service", "web.shop", &["-o", "json"])).unwrap();
        let [first, second] = &document["workloads"].as_array().unwrap()[..] else { panic!("{document:#}") };
        assert_eq!(first["policies"]["authorizationPolicies"][0]["name"], "deny-v1.shop");
        assert_eq!(first["policies"]["requestAuthentications"][0]["name"], "tokens.istio-system");
        assert_eq!(second["policies"]["authorizationPolicies"], json!([]));
        let peers = &second["policies"]["mutualTls"]["peerAuthentications"];
        assert_eq!((&peers[0]["name"], &peers[1]["name"]), (&json!("v2.shop"), &json!("strict.shop")));
        assert!(document["virtualServices"][0]["place"].as_str().unwrap().contains("mesh.yaml:"), "{document:#}");

        let text = describe("workload", &proxy, &[]);
        assert!(text.starts_with(&format!("Workload: {proxy} (sidecar, connected)\n")), "{text}");
        assert!(text.contains("Mutual TLS: PERMISSIVE") && text.contains("RequestAuthentication: tokens"), "{text}");
        assert!(refusal(&["describe", "service", "nobody.shop", "--http-addr", &http], 65).contains("nobody.shop"));
        let line = refusal(&["describe", "service", "twice.example", "--http-addr", &http], 65);
        assert!(line.contains("a/twice.example, b/twice.example"), "{line}");
        assert!(describe("service", "twice.example.b", &[]).starts_with("ServiceEntry: twice.b\n"));
        assert!(refusal(&["describe", "workload", "nobody", "--http-addr", &http], 65).contains("nobody"));
        refusal(&["describe", "gateway", "x"], 64);
    })
    .await;
    end(running).await;
}
