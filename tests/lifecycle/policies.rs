//! A policy that no proxy enforces says so: in `validate`, in the findings of its source, and in its status. And what Envoy
//! would refuse of an object is told at that object.

use std::{fs, process::Command, time::Duration};

use pilothouse::{
    app::Running,
    model::Kind,
    proto::{envoy::config::core::v3::Node, json_to_struct},
    testing::AdsClient,
    xds::ResourceType,
};
use serde_json::{Value, json};

use crate::{
    confirm::{aside, ask},
    stage::{DEADLINE, end, start, until},
};

const POLICIES: &str = "
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny, namespace: shop}
spec: {action: DENY, rules: [{}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: waypoint, namespace: shop}
spec: {targetRefs: [{group: '', kind: Service, name: api}], action: DENY, rules: [{}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: asks, namespace: shop}
spec: {action: CUSTOM, provider: {name: nobody}, rules: [{}]}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens, namespace: shop}
spec: {jwtRules: [{issuer: a, jwksUri: 'http://127.0.0.1:1/keys'}]}
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: logs, namespace: shop}
spec: {accessLogging: [{disabled: true}]}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: patch, namespace: shop}
spec: {configPatches: [{applyTo: CLUSTER, match: {context: ANY}, patch: {operation: MERGE, value: {connect_timeout: 1s}}}]}
---
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: plugin, namespace: shop}
spec: {url: 'oci://a.example/b:1'}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: fine, namespace: shop}
spec: {host: api.example}
";

const KINDS: [&str; 3] = ["Telemetry", "EnvoyFilter", "WasmPlugin"];

/// A route that Envoy would refuse beside one that it takes, and a cluster that it would refuse.
const REFUSED: &str = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: api, namespace: shop}
spec: {hosts: [api.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: api, namespace: shop}
spec:
  hosts: [api.example]
  http:
  - name: bad
    match: [{uri: {prefix: /bad}}]
    headers: {request: {set: {x-a: '%NOPE%'}}}
    route: [{destination: {host: api.example}}]
  - route: [{destination: {host: api.example}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: far, namespace: shop}
spec: {hosts: [far.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.2}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: far, namespace: shop}
spec: {host: far.example, trafficPolicy: {tls: {mode: SIMPLE, sni: SNI}}}
";

/// A gRPC server, and a policy of each kind that it cannot enforce.
const GRPC: &str = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: api, namespace: shop}
spec: {hosts: [api.example], ports: [{number: 80, name: grpc, protocol: GRPC, targetPort: 8080}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: enforced, namespace: shop}
spec: {rules: [{}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: audit, namespace: shop}
spec: {action: AUDIT, rules: [{}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: tried, namespace: shop, annotations: {istio.io/dry-run: 'true'}}
spec: {action: DENY, rules: [{}]}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens, namespace: shop}
spec: {jwtRules: [{issuer: a, jwks: '{\"keys\": []}'}]}
";

fn refused() -> String {
    REFUSED.replace("SNI", &"a".repeat(400))
}

async fn statuses(running: &Running) -> Vec<Value> {
    let address = running.addresses.http;
    let page = aside(move || ask(address, "GET /debug/statusz HTTP/1.0")).await;
    let body = page.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_default()
}

/// Waits until the condition of an object says this.
async fn until_says(running: &Running, kind: &str, name: &str, status: &str, text: &str) {
    let wait = async {
        loop {
            let all = statuses(running).await;
            let row = all.iter().find(|row| row["kind"] == kind && row["name"] == name);
            let condition = row.map(|row| row["status"]["conditions"][0].clone()).unwrap_or_default();
            if condition["status"] == status && condition["message"].as_str().is_some_and(|m| m.contains(text)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, wait).await;
    assert!(waited.is_ok(), "{kind} {name} does not say {status} {text:?}: {:#?}", statuses(running).await);
}

async fn subscribed(running: &Running) -> AdsClient {
    AdsClient::connect(running.addresses.grpc, "10.0.0.1").await.unwrap()
}

#[actix::test]
async fn a_policy_without_effect_is_never_reconciled() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("policies.yaml"), POLICIES).unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| !c.inputs.configs.list(Kind::AuthorizationPolicy).is_empty()).await;
    let client = subscribed(&running).await;
    let mut stream = client.sotw(None).await.unwrap();
    stream.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
    let first = stream.next().await.unwrap();
    stream.subscribe(ResourceType::Cluster, &[], &first.nonce).await.unwrap();
    until_says(&running, "DestinationRule", "fine", "True", "1/1 proxies").await;
    for (kind, name) in KINDS.into_iter().zip(["logs", "patch", "plugin"]) {
        until_says(&running, kind, name, "False", "has no effect yet").await;
    }
    until_says(&running, "AuthorizationPolicy", "deny", "True", "1/1 proxies").await;
    until_says(&running, "AuthorizationPolicy", "waypoint", "False", "for waypoints").await;
    until_says(&running, "AuthorizationPolicy", "asks", "False", "no external authorizer \"nobody\"").await;
    until_says(&running, "RequestAuthentication", "tokens", "False", "http://127.0.0.1:1/keys").await;
    let address = running.addresses.http;
    let sources = aside(move || ask(address, "GET /debug/sourcez HTTP/1.0")).await;
    for kind in KINDS {
        assert!(sources.contains(&format!("{kind} has no effect yet")), "{kind}: {sources}");
    }
    end(running).await;
}

#[actix::test]
async fn policies_that_a_grpc_server_cannot_enforce_say_so_while_it_is_connected() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), GRPC).unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| c.inputs.registry.services.len() == 1).await;
    let sidecar = subscribed(&running).await;
    let id = "sidecar~10.0.0.1~api.shop~shop.svc.cluster.local".to_string();
    let metadata = json_to_struct(&json!({"GENERATOR": "grpc"}));
    let server = sidecar.with_node(Node { id, metadata, ..Node::default() });
    let mut stream = server.sotw(None).await.unwrap();
    let names = ["xds.istio.io/grpc/lds/inbound/0.0.0.0:8080"];
    stream.subscribe(ResourceType::Listener, &names, "").await.unwrap();
    let first = stream.next().await.unwrap();
    assert_eq!(first.resources.len(), 1);
    stream.subscribe(ResourceType::Listener, &names, &first.nonce).await.unwrap();
    until_says(&running, "AuthorizationPolicy", "audit", "False", "no AUDIT").await;
    until_says(&running, "AuthorizationPolicy", "tried", "False", "no dry runs").await;
    until_says(&running, "RequestAuthentication", "tokens", "False", "verify no tokens").await;
    until_says(&running, "AuthorizationPolicy", "enforced", "True", "1/1 proxies").await;
    let address = running.addresses.http;
    let clients = aside(move || ask(address, "GET /debug/adsz HTTP/1.0")).await;
    for policy in ["shop/audit", "shop/tried", "shop/tokens"] {
        assert!(clients.contains(policy), "{policy}: {clients}");
    }
    drop(stream);
    let mut other = sidecar.sotw(None).await.unwrap();
    other.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
    let first = other.next().await.unwrap();
    other.subscribe(ResourceType::Cluster, &[], &first.nonce).await.unwrap();
    until_says(&running, "AuthorizationPolicy", "audit", "True", "1/1 proxies").await;
    end(running).await;
}

#[test]
fn validate_names_policies_without_effect_and_parts_that_envoy_would_refuse() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("policies.yaml"), POLICIES).unwrap();
    fs::write(dir.path().join("refused.yaml"), refused()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_pilothouse")).arg("validate").arg(dir.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for kind in KINDS {
        assert!(text.contains(&format!("{kind} has no effect yet")), "{kind}: {text}");
    }
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("Envoy would refuse")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines.iter().any(|line| line.contains("VirtualService") && line.contains("NOPE")), "{text}");
    assert!(lines.iter().any(|line| line.contains("DestinationRule") && line.contains("sni")), "{text}");
}

#[actix::test]
async fn config_that_envoy_would_refuse_is_reported_at_the_object_until_it_is_mended() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.yaml");
    fs::write(&file, refused()).unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| c.inputs.registry.services.len() == 2).await;
    let client = subscribed(&running).await;
    let mut clusters = client.sotw(None).await.unwrap();
    clusters.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
    clusters.next().await.unwrap();
    let mut routes = client.sotw(None).await.unwrap();
    routes.subscribe(ResourceType::Route, &["80"], "").await.unwrap();
    let first = routes.next().await.unwrap();
    routes.subscribe(ResourceType::Route, &["80"], &first.nonce).await.unwrap();
    until_says(&running, "VirtualService", "api", "False", "%NOPE%").await;
    until_says(&running, "DestinationRule", "far", "False", "sni").await;
    fs::write(&file, refused().replace("%NOPE%", "plain")).unwrap();
    routes.next().await.unwrap();
    until_says(&running, "VirtualService", "api", "False", "proxies up to date").await;
    end(running).await;
}
