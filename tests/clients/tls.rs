//! TLS at the gateway and towards services.

use std::{fs, path::PathBuf, process::Command};

use serde_json::json;

use crate::{
    config::{gateway, object, service, to},
    http::{Echo, get},
    mesh::{ControlPlane, Envoy},
    process::{Process, free_port, scratch, wait_for},
    tools::{TOOLS, program},
};

const NODE: &str = "router~127.0.0.1~edge.shop~shop.svc.cluster.local";

/// A certificate of its own authority for one host: certificate and key, as PEM and as files.
pub struct Certificate {
    pub chain: String,
    pub key: String,
    pub chain_file: PathBuf,
    pub key_file: PathBuf,
}

impl Certificate {
    pub fn of(host: &str) -> Self {
        let made = rcgen::generate_simple_self_signed(vec![host.to_string()]).unwrap();
        let (chain, key, folder) = (made.cert.pem(), made.signing_key.serialize_pem(), scratch());
        let (chain_file, key_file) = (folder.join("cert.pem"), folder.join("key.pem"));
        fs::write(&chain_file, &chain).unwrap();
        fs::write(&key_file, &key).unwrap();
        Self { chain, key, chain_file, key_file }
    }
}

pub fn https_get(port: u16, host: &str, roots: &PathBuf) -> Option<String> {
    let output = Command::new(&TOOLS.python)
        .arg(program("https_get.py"))
        .args([&port.to_string(), host])
        .arg(roots)
        .output()
        .unwrap();
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn the_gateway_terminates_tls_with_files_and_with_secrets() {
    let (from_secret, from_file, echo) =
        (Certificate::of("secret.example"), Certificate::of("file.example"), Echo::start("web"));
    let port = free_port();
    let server = |name: &str, host: &str, tls: serde_json::Value| json!({"port": {"number": port, "name": name, "protocol": "HTTPS"}, "hosts": [host], "tls": tls});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "edge-cert", "namespace": "shop"},
        "stringData": {"tls.crt": from_secret.chain, "tls.key": from_secret.key}, "type": "kubernetes.io/tls",
    });
    let text = service("web.example", 80, "HTTP", &[(echo.port, "v1", "")])
        + &object(
            "Gateway",
            "edge",
            &json!({"selector": {"app": "edge"}, "servers": [
                server("https-a", "secret.example", json!({"mode": "SIMPLE", "credentialName": "edge-cert"})),
                server("https-b", "file.example", json!({"mode": "SIMPLE",
                    "serverCertificate": from_file.chain_file, "privateKey": from_file.key_file})),
            ]}),
        )
        + &object(
            "VirtualService",
            "web",
            &json!({"hosts": ["secret.example", "file.example"], "gateways": ["edge"],
            "http": [{"route": [{"destination": {"host": "web.example"}}]}]}),
        )
        + &format!("---\n{secret}\n");
    let plane = ControlPlane::start(&[("edge.yaml", text)]);
    let envoy = Envoy::start(&plane, NODE, &json!({"LABELS": {"app": "edge"}}), false);
    for (host, certificate) in [("secret.example", &from_secret), ("file.example", &from_file)] {
        let body = wait_for("HTTPS is answered", || https_get(port, host, &certificate.chain_file));
        assert!(body.contains("\"name\":\"web\""), "{body}");
    }
    assert!(https_get(port, "secret.example", &from_file.chain_file).is_none(), "another authority must not do");
    envoy.assert_no_nacks();
}

/// A server for one host that Envoy refuses, beside one for all hosts that demands less: connections to that host are closed.
#[test]
fn a_server_of_the_gateway_that_envoy_refuses_leaves_its_host_to_no_other() {
    let (certificate, echo, port) = (Certificate::of("*.shop.example"), Echo::start("web"), free_port());
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cert", "namespace": "shop"},
        "stringData": {"tls.crt": certificate.chain, "tls.key": certificate.key, "ca.crt": certificate.chain},
    });
    let server = |name: &str, host: &str, tls: serde_json::Value| json!({"port": {"number": port, "name": name, "protocol": "HTTPS"}, "hosts": [host], "tls": tls});
    let with = |hash: &str| {
        let guarded = json!({"mode": "MUTUAL", "credentialName": "cert", "verifyCertificateHash": [hash]});
        let servers = json!([
            server("guarded", "guarded.shop.example", guarded),
            server("others", "*.shop.example", json!({"mode": "SIMPLE", "credentialName": "cert"})),
        ]);
        let routes = json!({"hosts": ["*.shop.example"], "gateways": ["edge"],
            "http": [{"route": [{"destination": {"host": "web.example"}}]}]});
        service("web.example", 80, "HTTP", &[(echo.port, "v1", "")])
            + &object("Gateway", "edge", &json!({"selector": {"app": "edge"}, "servers": servers}))
            + &object("VirtualService", "web", &routes)
            + &format!("---\n{secret}\n")
    };
    let plane = ControlPlane::start(&[("edge.yaml", with("no hash"))]);
    let envoy = Envoy::start(&plane, NODE, &json!({"LABELS": {"app": "edge"}}), true);
    let ask = |host: &str| https_get(port, host, &certificate.chain_file);
    let unproven = format!("listener.0.0.0.0_{port}.ssl.fail_verify_no_cert");
    wait_for("another host is answered", || ask("other.shop.example"));
    assert_eq!(ask("guarded.shop.example"), None, "a host that demands certificates is answered without one");
    assert_eq!(envoy.stat(&unproven), 0, "its connections end before TLS");
    assert!(plane.debug("/debug/push_status").to_string().contains("Gateway/shop/edge"));
    plane.write("edge.yaml", &with(&"ab".repeat(32)));
    wait_for("the mended server asks for a certificate", || {
        assert_eq!(ask("guarded.shop.example"), None);
        (envoy.stat(&unproven) > 0).then_some(())
    });
    assert!(ask("other.shop.example").is_some());
    envoy.assert_no_nacks();
}

#[test]
fn the_gateway_originates_tls() {
    let (certificate, upstream, port) = (Certificate::of("secure.example"), free_port(), free_port());
    let mut server = Command::new(&TOOLS.python);
    server
        .arg(program("tls_server.py"))
        .arg(upstream.to_string())
        .args([&certificate.chain_file, &certificate.key_file])
        .arg("secure");
    let _server = Process::start("tls-server", &mut server);
    let text = service("secure.example", 80, "HTTP", &[(upstream, "v1", "")])
        + &gateway(port)
        + &object(
            "DestinationRule",
            "secure",
            &json!({"host": "secure.example", "trafficPolicy": {"tls": {
            "mode": "SIMPLE", "sni": "secure.example", "caCertificates": certificate.chain_file,
            "subjectAltNames": ["secure.example"]}}}),
        )
        + &object(
            "VirtualService",
            "secure",
            &json!({"hosts": ["secure.example"], "gateways": ["edge"],
            "http": [{"route": [{"destination": {"host": "secure.example"}}]}]}),
        );
    let plane = ControlPlane::start(&[("edge.yaml", text)]);
    let envoy = Envoy::start(&plane, NODE, &json!({"LABELS": {"app": "edge"}}), true);
    let answer =
        wait_for("the TLS server answers", || get(port, "secure.example", "/x", &[]).ok().filter(|a| a.status == 200));
    assert_eq!((answer.seen("name"), answer.seen("path")), ("secure".to_string(), "/x".to_string()));
    envoy.assert_no_nacks();
}

#[test]
fn the_gateway_passes_tls_through_by_server_name() {
    let (a, b, port) = (Certificate::of("a.example"), Certificate::of("b.example"), free_port());
    let mut servers = Vec::new();
    let mut text = object(
        "Gateway",
        "edge",
        &json!({"selector": {"app": "edge"}, "servers": [
            {"port": {"number": port, "name": "tls", "protocol": "TLS"}, "hosts": ["a.example", "b.example"], "tls": {"mode": "PASSTHROUGH"}},
        ]}),
    );
    for (name, certificate) in [("a", &a), ("b", &b)] {
        let upstream = free_port();
        let host = format!("{name}.example");
        let mut server = Command::new(&TOOLS.python);
        server
            .arg(program("tls_server.py"))
            .arg(upstream.to_string())
            .args([&certificate.chain_file, &certificate.key_file])
            .arg(name);
        servers.push(Process::start(name, &mut server));
        text += &service(&host, 443, "TLS", &[(upstream, "v1", "")]);
        let mut route = to(&host, "");
        route["destination"]["port"] = json!({"number": 443});
        text += &object(
            "VirtualService",
            name,
            &json!({"hosts": [host], "gateways": ["edge"], "tls": [
            {"match": [{"port": port, "sniHosts": [format!("{name}.example")]}], "route": [route]}]}),
        );
    }
    let plane = ControlPlane::start(&[("edge.yaml", text)]);
    let envoy = Envoy::start(&plane, NODE, &json!({"LABELS": {"app": "edge"}}), false);
    for (name, certificate) in [("a", &a), ("b", &b)] {
        let host = format!("{name}.example");
        let body = wait_for("TLS is passed through", || https_get(port, &host, &certificate.chain_file));
        assert!(body.contains(&format!("\"name\": \"{name}\"")), "{body}");
    }
    envoy.assert_no_nacks();
}
