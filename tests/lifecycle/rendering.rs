//! `pilothouse render`: the resources of a proxy, from a folder, by the program itself.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};
use tempfile::TempDir;

/// The output of `render` of one type, for a sidecar with this metadata, from a folder with these objects and with these flags.
fn rendered(objects: &str, metadata: &Value, flags: &[(&str, &str)], resources: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("config")).unwrap();
    fs::write(path("config/a.yaml"), objects).unwrap();
    fs::write(path("metadata.json"), metadata.to_string()).unwrap();
    render(&dir, &path("metadata.json"), flags);
    serde_json::from_slice(&fs::read(path("out").join(format!("{resources}.json"))).unwrap()).unwrap()
}

fn render(dir: &TempDir, metadata: &Path, flags: &[(&str, &str)]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    command.args(["render", "--node", "sidecar~10.0.0.9~client.shop~shop.svc.cluster.local", "--config-dir"]);
    command.arg(dir.path().join("config")).arg("--metadata").arg(metadata).arg("--out").arg(dir.path().join("out"));
    let output = command.envs(flags.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_folder_that_does_not_exist_is_no_empty_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    command.args(["render", "--node", "sidecar~10.0.0.9~client.shop~shop.svc.cluster.local", "--config-dir"]);
    let output = command.arg(dir.path().join("nowhere")).arg("--out").arg(dir.path().join("out")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(64) && text.contains("nowhere: no such file or folder"), "{text}");
    assert!(!dir.path().join("out").exists());
}

fn named<'a>(resources: &'a Value, name: &str) -> &'a Value {
    let found = resources.as_array().unwrap().iter().find(|r| r["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {resources}"))
}

/// A Service whose endpoints a user's DestinationRule watches for errors, and whose backends a BackendTLSPolicy has TLS for.
const BACKEND: &str = "
apiVersion: v1
kind: Service
metadata: {name: pay, namespace: shop}
spec: {clusterIP: 10.1.1.1, ports: [{name: https, port: 443, targetPort: 8443}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: RULE, namespace: shop, creationTimestamp: TIME}
spec:
  host: pay.shop.svc.cluster.local
  trafficPolicy: {outlierDetection: {consecutive5xxErrors: 7}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: pay, namespace: shop, creationTimestamp: 2021-01-01T00:00:00Z}
spec:
  targetRefs: [{group: '', kind: Service, name: pay}]
  validation: {hostname: pay.example.com, wellKnownCACertificates: System}
";

#[test]
fn a_rule_of_a_user_keeps_the_backend_s_tls_at_any_age() {
    for (name, time) in [("a", "2020-01-01T00:00:00Z"), ("z", "2022-01-01T00:00:00Z"), ("a", "1970-01-01T00:00:00Z")] {
        let objects = BACKEND.replace("RULE", name).replace("TIME", time);
        let clusters = rendered(&objects, &json!({}), &[], "clusters");
        let cluster = named(&clusters, "outbound|443||pay.shop.svc.cluster.local");
        let sni = &cluster["transportSocket"]["typedConfig"]["sni"];
        assert_eq!(sni, "pay.example.com", "{name} of {time}: {cluster}");
        assert_eq!(cluster["outlierDetection"]["consecutive5xx"], 7, "{name} of {time}: {cluster}");
    }
}

#[test]
fn without_gateway_api_none_of_its_objects_counts() {
    let of = |flag: &str| {
        let objects = BACKEND.replace("RULE", "a").replace("TIME", "2020-01-01T00:00:00Z");
        let clusters = rendered(&objects, &json!({}), &[("PILOT_ENABLE_GATEWAY_API", flag)], "clusters");
        let cluster = named(&clusters, "outbound|443||pay.shop.svc.cluster.local");
        (cluster["transportSocket"].is_null(), cluster["outlierDetection"]["consecutive5xx"].clone())
    };
    assert_eq!(of("true"), (false, json!(7)));
    assert_eq!(of("false"), (true, json!(7)));
}

#[test]
fn a_whole_locality_on_a_label_is_a_proxy_s_locality() {
    let objects = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: near, namespace: shop}
spec:
  hosts: [near.example]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.1, locality: east/a}, {address: 10.0.0.2, locality: west/b}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: near, namespace: shop}
spec: {host: near.example, trafficPolicy: {outlierDetection: {}}}
";
    let metadata = json!({"LABELS": {"topology.istio.io/locality": "west.b"}});
    let endpoints = rendered(objects, &metadata, &[], "endpoints");
    let found = endpoints.as_array().unwrap().iter().find(|e| e["clusterName"] == "outbound|80||near.example").unwrap();
    let groups = found["endpoints"].as_array().unwrap();
    let nearest = groups.iter().find(|group| group["priority"].is_null()).unwrap();
    assert_eq!(nearest["locality"]["region"], "west", "{found}");
    assert_eq!(groups.len(), 2);
}

/// A service outside of the mesh that is called with TLS.
const FAR: &str = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: far, namespace: shop}
spec:
  hosts: [far.example]
  location: MESH_EXTERNAL
  ports: [{number: 443, name: https, protocol: HTTPS}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.1}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: far, namespace: shop}
spec: {host: far.example, trafficPolicy: {tls: {mode: SIMPLE, sni: far.example}}}
";

#[test]
fn the_file_of_the_system_s_authorities_is_named_by_a_flag_and_by_the_node() {
    let of = |metadata: Value, flags: &[(&str, &str)]| {
        let clusters = rendered(FAR, &metadata, flags, "clusters");
        let context = &named(&clusters, "outbound|443||far.example")["transportSocket"]["typedConfig"];
        let trusted = &context["commonTlsContext"]["validationContext"]["trustedCa"]["filename"];
        trusted.as_str().unwrap_or_else(|| panic!("{context}")).to_string()
    };
    let name = "PILOTHOUSE_SYSTEM_CA_FILE";
    assert_eq!(of(json!({}), &[]), "/etc/ssl/certs/ca-certificates.crt");
    assert_eq!(of(json!({}), &[(name, "/etc/pki/tls/certs/ca-bundle.crt")]), "/etc/pki/tls/certs/ca-bundle.crt");
    let own = json!({(name): "/etc/ssl/cert.pem"});
    assert_eq!(of(own, &[(name, "/etc/pki/tls/certs/ca-bundle.crt")]), "/etc/ssl/cert.pem", "the node knows its files");
}

#[test]
fn istio_s_proxies_exchange_further_labels_where_a_flag_names_them() {
    let metadata = json!({"ISTIO_VERSION": "1.27.0"});
    for resources in ["clusters", "listeners"] {
        let of = |flags: &[(&str, &str)]| rendered(FAR, &metadata, flags, resources).to_string();
        assert!(of(&[]).contains("istio.metadata_exchange") && !of(&[]).contains("additional_labels"), "{resources}");
        let named = of(&[("PILOT_MX_ADDITIONAL_LABELS", "team, cell,team")]);
        let (filters, labelled) = ("enable_discovery", r#""additional_labels":["cell","team"]"#);
        assert!(named.contains(labelled), "{resources}: {named}");
        assert_eq!(
            named.matches(filters).count() + named.matches("_propagation").count(),
            named.matches(labelled).count()
        );
    }
}
