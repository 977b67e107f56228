//! References from one namespace into another are followed where a ReferenceGrant permits them.

use std::{
    fs,
    process::Command,
    time::{Duration, SystemTime},
};

use pilothouse::identity::authority::new_root;
use serde_json::{Value, json};

/// CVE-2026-53718: references to another namespace without a ReferenceGrant were followed, for one kind of reference.
#[test]
fn cve_2026_53718_each_kind_of_reference_to_another_namespace_needs_a_grant() {
    let api = "gateway.networking.k8s.io/v1";
    let object = |api: &str, kind: &str, namespace: &str, name: &str, spec: &Value| {
        let metadata = json!({"name": name, "namespace": namespace});
        format!("---\n{}\n", json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}))
    };
    let service = |namespace: &str, name: &str, port: u16| {
        let spec = json!({"selector": {"app": name}, "ports": [{"name": "tcp", "port": port}]});
        object("v1", "Service", namespace, name, &spec)
    };
    let to =
        |name: &str| json!([{"name": name, "namespace": if name == "vault" { "bank" } else { "edge" }, "port": 80}]);
    let mirrored = json!([{"type": "RequestMirror", "requestMirror": {"backendRef": to("vault")[0]}}]);
    let day = Duration::from_secs(86_400);
    let material = new_root("bank", SystemTime::now(), day).unwrap();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls", "namespace": "bank"},
        "stringData": {"tls.crt": material.certificate, "tls.key": material.key}});
    let rows = [
        ("HTTPRoute", json!({"rules": [{"backendRefs": to("vault")}]}), "HTTP"),
        ("HTTPRoute", json!({"rules": [{"filters": mirrored, "backendRefs": to("own")}]}), "HTTP"),
        ("GRPCRoute", json!({"rules": [{"backendRefs": to("vault")}]}), "HTTP"),
        ("TCPRoute", json!({"rules": [{"backendRefs": to("vault")}]}), "TCP"),
        ("TLSRoute", json!({"hostnames": ["a.example"], "rules": [{"backendRefs": to("vault")}]}), "TLS"),
        ("", json!({}), "HTTPS"),
    ];
    for (kind, mut route, protocol) in rows {
        let tls = match protocol {
            "TLS" => json!({"mode": "Passthrough"}),
            "HTTPS" => json!({"certificateRefs": [{"name": "tls", "namespace": "bank"}]}),
            _ => Value::Null,
        };
        let mut listener = json!({"name": "one", "port": 8000, "protocol": protocol});
        if !tls.is_null() {
            listener["tls"] = tls;
        }
        let gateway = json!({"gatewayClassName": "istio", "listeners": [listener]});
        let mut text = object(api, "Gateway", "edge", "edge", &gateway)
            + &service("edge", "edge-istio", 8000)
            + &service("edge", "own", 80)
            + &service("bank", "vault", 80)
            + &format!("---\n{secret}\n");
        let mut from = json!({"group": "gateway.networking.k8s.io", "kind": kind, "namespace": "edge"});
        let mut granted = json!({"group": "", "kind": "Service"});
        if kind.is_empty() {
            (from["kind"], granted["kind"]) = ("Gateway".into(), "Secret".into());
        } else {
            route["parentRefs"] = json!([{"name": "edge"}]);
            let version = if matches!(kind, "TCPRoute") { "gateway.networking.k8s.io/v1alpha2" } else { api };
            text += &object(version, kind, "edge", "route", &route);
        }
        let grant = |from: &Value, to: &Value| {
            object(
                "gateway.networking.k8s.io/v1beta1",
                "ReferenceGrant",
                "bank",
                "grant",
                &json!({"from": [from], "to": [to]}),
            )
        };
        let leads = |grant: &str| {
            let dir = tempfile::tempdir().unwrap();
            let (config, metadata, out) =
                (dir.path().join("config"), dir.path().join("metadata"), dir.path().join("out"));
            fs::create_dir(&config).unwrap();
            fs::write(config.join("a.yaml"), text.clone() + grant).unwrap();
            fs::write(&metadata, json!({"LABELS": {"app": "edge-istio"}}).to_string()).unwrap();
            let mut render = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
            render.args(["render", "--node", "router~10.0.0.9~a.edge~edge.svc.cluster.local", "--metadata"]);
            let output =
                render.arg(&metadata).arg("--config-dir").arg(&config).arg("--out").arg(&out).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let sent =
                ["listeners.json", "routes.json"].map(|name| fs::read_to_string(out.join(name)).unwrap_or_default());
            let sent = sent.concat();
            sent.contains("vault.bank") || sent.contains("bank/tls")
        };
        assert!(!leads(""), "{kind} {protocol} without a grant");
        assert!(leads(&grant(&from, &granted)), "{kind} {protocol} with a grant");
        let mut elsewhere = from.clone();
        elsewhere["namespace"] = "shop".into();
        assert!(!leads(&grant(&elsewhere, &granted)), "{kind} {protocol} with a grant for another namespace");
        assert!(
            !leads(&grant(&from, &json!({"group": "", "kind": "ConfigMap"}))),
            "{kind} {protocol} for another kind"
        );
    }
}
