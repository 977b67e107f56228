//! A policy that no proxy enforces is reported: in `validate`, in the findings of its source, and in its status. And what Envoy
//! would refuse of an object is told at that object.

use std::{
    fs,
    net::SocketAddr,
    process::Command,
    time::{Duration, Instant},
};

use pilothouse::{
    app::Running,
    model::Kind,
    proto::{envoy::config::core::v3::Node, json_to_struct},
    testing::{AdsClient, ClientError, SotwStream},
    xds::ResourceType,
};
use serde_json::{Value, json};

use crate::{
    binary::Binary,
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
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: younger, namespace: shop}
spec:
  accessLogging: [{providers: [{name: nobody}], filter: {expression: 'nope(1)'}}]
  tracing: [{providers: [{name: envoy}], customTags: {empty: {}}}]
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: patch, namespace: shop}
spec: {configPatches: [{applyTo: CLUSTER, match: {context: ANY}, patch: {operation: MERGE, value: {connect_timeout: 1s}}}]}
---
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: plugin, namespace: shop}
spec: {targetRefs: [{group: '', kind: Service, name: api}], url: 'oci://a.example/b:1'}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: fine, namespace: shop}
spec: {host: api.example}
";

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

/// Routes with fields that gRPC clients do not apply: of a VirtualService, of a GRPCRoute, of a DestinationRule, and weights.
const NOT_APPLIED: &str = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: api, namespace: shop}
spec:
  hosts: [api.example]
  ports: [{number: 80, name: grpc, protocol: GRPC}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.1, weight: 3}, {address: 10.0.0.2}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: api, namespace: shop}
spec:
  hosts: [api.example]
  http:
  - name: rewrites
    match: [{uri: {prefix: /a.A/}, method: {exact: POST}}]
    rewrite: {uri: /b.B/}
    route: [{destination: {host: api.example}}]
  - route: [{destination: {host: api.example}}]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.1.1.1, ports: [{name: grpc, port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: web, namespace: shop}
spec:
  parentRefs: [{group: '', kind: Service, name: web}]
  rules:
  - filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-a, value: b}]}}]
    backendRefs: [{name: web, port: 80}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: far, namespace: shop}
spec: {hosts: [far.example], ports: [{number: 80, name: grpc, protocol: GRPC}], resolution: STATIC, endpoints: [{address: 10.0.0.3}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: far, namespace: shop}
spec: {host: far.example, trafficPolicy: {loadBalancer: {consistentHash: {httpCookie: {name: c, ttl: 1s}}}}}
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
    until_says(&running, "WasmPlugin", "plugin", "False", "for waypoints").await;
    until_says(&running, "Telemetry", "logs", "True", "1/1 proxies").await;
    let unmet = [
        "none of this name",
        "none for tracing",
        "no function nope",
        "\"empty\" is left out",
        "\"logs\", which is older",
    ];
    for reason in unmet {
        until_says(&running, "Telemetry", "younger", "False", reason).await;
    }
    until_says(&running, "EnvoyFilter", "patch", "True", "1/1 proxies").await;
    until_says(&running, "AuthorizationPolicy", "deny", "True", "1/1 proxies").await;
    until_says(&running, "AuthorizationPolicy", "waypoint", "False", "for waypoints").await;
    until_says(&running, "AuthorizationPolicy", "asks", "False", "no external authorizer \"nobody\"").await;
    until_says(&running, "RequestAuthentication", "tokens", "False", "http://127.0.0.1:1/keys").await;
    let address = running.addresses.http;
    let sources = aside(move || ask(address, "GET /debug/sourcez HTTP/1.0")).await;
    assert_eq!(sources.matches("has no effect yet").count(), 2, "{sources}");
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

/// Names that a client of proxyless gRPC asks for.
const GRPC_HOSTS: [&str; 3] =
    ["outbound|80||api.example", "outbound|80||web.shop.svc.cluster.local", "outbound|80||far.example"];

/// A client of proxyless gRPC, and its streams by type, each with its first response acknowledged.
async fn grpc_client(address: SocketAddr, number: usize) -> Result<Vec<SotwStream>, ClientError> {
    let id = format!("sidecar~10.0.0.{number}~client-{number}.shop~shop.svc.cluster.local");
    let metadata = json_to_struct(&json!({"GENERATOR": "grpc"}));
    let client = AdsClient::connect(address, "10.0.0.9").await?.with_node(Node { id, metadata, ..Node::default() });
    let mut streams = Vec::new();
    for kind in [ResourceType::Route, ResourceType::Cluster, ResourceType::Endpoint] {
        let mut stream = client.sotw(None).await?;
        stream.subscribe(kind, &GRPC_HOSTS, "").await?;
        let first = stream.next().await?;
        assert_eq!(first.resources.len(), GRPC_HOSTS.len(), "{kind:?}");
        stream.subscribe(kind, &GRPC_HOSTS, &first.nonce).await?;
        streams.push(stream);
    }
    Ok(streams)
}

const TOLD: [(&str, &str, &str); 3] = [
    ("VirtualService", "api", "\"rewrites\": proxyless gRPC does not apply matches of the method, rewrites"),
    ("ServiceEntry", "api", "proxyless gRPC does not apply weights of endpoints"),
    ("DestinationRule", "far", "proxyless gRPC does not apply hashes of a cookie"),
];

#[actix::test]
async fn fields_that_grpc_clients_do_not_apply_are_told_at_their_objects_while_such_are_connected() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), NOT_APPLIED).unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| c.inputs.registry.services.len() == 3).await;
    let client = grpc_client(running.addresses.grpc, 1).await.unwrap();
    for (kind, name, text) in TOLD {
        until_says(&running, kind, name, "False", text).await;
    }
    // The conditions of a GRPCRoute are those of Gateway API: it is a report beside them.
    let says = "proxyless gRPC does not apply operations on headers";
    let all = statuses(&running).await;
    let route = all.iter().find(|row| row["kind"] == "GRPCRoute").unwrap();
    assert!(route["reports"].to_string().contains(says), "{route:#}");
    // Without such a client they are what they say.
    drop(client);
    let mut sidecar = subscribed(&running).await.sotw(None).await.unwrap();
    sidecar.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
    let first = sidecar.next().await.unwrap();
    sidecar.subscribe(ResourceType::Cluster, &[], &first.nonce).await.unwrap();
    for (kind, name, _) in TOLD {
        until_says(&running, kind, name, "True", "proxies up to date").await;
    }
    end(running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_grpc_clients_do_not_apply_are_logged_once() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), NOT_APPLIED).unwrap();
    let mut server = Binary::serve(dir.path(), &[], &[]);
    let (address, _) = server.addresses();
    let mut clients = Vec::new();
    for number in 1..=5 {
        let start = Instant::now();
        clients.push(loop {
            match grpc_client(address, number).await {
                Ok(client) => break client,
                Err(error) => assert!(start.elapsed() < DEADLINE, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        });
    }
    // A change of another object builds the same things anew, and they are built when the next change is sent.
    for address in ["10.0.0.4", "10.0.0.5"] {
        fs::write(dir.path().join("a.yaml"), NOT_APPLIED.replace("10.0.0.3", address)).unwrap();
        let response = clients[0][2].next().await.unwrap();
        clients[0][2].subscribe(ResourceType::Endpoint, &GRPC_HOSTS, &response.nonce).await.unwrap();
    }
    let says = |line: &str| line.contains("does not apply").then_some(());
    for _ in 0..4 {
        server.until("a field that is not applied", says);
    }
    assert_eq!(server.lines_with("does not apply"), 4);
    drop(clients);
    server.terminate();
    assert_eq!(server.ends_within(DEADLINE).code(), Some(0));
}

#[test]
fn validate_names_policies_without_effect_and_parts_that_envoy_would_refuse() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("policies.yaml"), POLICIES).unwrap();
    fs::write(dir.path().join("refused.yaml"), refused()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_pilothouse")).arg("validate").arg(dir.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("has no effect yet").count(), 2, "{text}");
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
