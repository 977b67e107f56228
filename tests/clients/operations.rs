//! The commands of a platform team against a real Envoy: what it holds, and whether that is what it was sent.

use std::process::Command;

use serde_json::{Value, json};

use crate::{
    config::{object, service, subsets, to},
    http::{Echo, get},
    mesh::{ControlPlane, Envoy},
    process::{free_port, wait_for},
};

const NODE: &str = "sidecar~10.0.0.1~client.shop~shop.svc.cluster.local";

fn said(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_pilothouse")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The cells of the rows that contain this.
fn rows(text: &str, with: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| line.split("  ").map(str::trim).filter(|c| !c.is_empty()).map(String::from).collect();
    text.lines().filter(|line| line.contains(with)).map(cells).collect()
}

#[test]
fn a_listener_of_plain_http_names_its_gateway() {
    let (v1, port) = (Echo::start("v1"), free_port());
    let server =
        json!({"port": {"number": port, "name": "http", "protocol": "HTTP"}, "bind": "127.0.0.1", "hosts": ["*"]});
    let routes = json!({"hosts": ["*"], "gateways": ["front"], "http": [{"route": [to("web.example", "v1")]}]});
    let text = service("web.example", 80, "HTTP", &[(v1.port, "v1", "")])
        + &subsets("web.example")
        + &object("Gateway", "front", &json!({"selector": {"app": "front"}, "servers": [server]}))
        + &object("VirtualService", "web", &routes);
    let plane = ControlPlane::start(&[("shop.yaml", text)]);
    let node = "router~127.0.0.1~front.shop~shop.svc.cluster.local";
    let envoy = Envoy::start(&plane, node, &json!({"LABELS": {"app": "front"}}), true);
    wait_for("the gateway answers", || get(port, "any.example", "/", &[]).ok().filter(|a| a.status == 200));
    let server = format!("127.0.0.1:{}", plane.http_port);
    for what in [&["listener"][..], &["all", "--address", "127.0.0.1"]] {
        let text = said(&[&["pc"], what, &["front.shop", "--http-addr", &server]].concat());
        let row = rows(&text, &format!("Route: http.{port}")).remove(0);
        assert_eq!(row.last().map(String::as_str), Some("Gateway/front.shop"), "{text}");
    }
    envoy.assert_no_nacks();
}

#[test]
fn an_envoy_holds_what_it_was_sent() {
    let (v1, port) = (Echo::start("v1"), free_port());
    let egress = json!({"egress": [{
        "port": {"number": port, "protocol": "HTTP", "name": "egress"}, "bind": "127.0.0.1", "captureMode": "NONE",
        "hosts": ["./*"]}]});
    let routes = json!({"hosts": ["web.example"], "http": [{"match": [{"uri": {"prefix": "/api"}}], "route": [to("web.example", "v1")]}]});
    let text = service("web.example", port, "HTTP", &[(v1.port, "v1", "")])
        + &subsets("web.example")
        + &object("Sidecar", "client", &egress)
        + &object("VirtualService", "web", &routes);
    let plane = ControlPlane::start(&[("shop.yaml", text)]);
    let metadata = json!({"INTERCEPTION_MODE": "NONE", "LABELS": {"app": "client"}});
    let envoy = Envoy::start(&plane, NODE, &metadata, true);
    wait_for("the sidecar answers", || get(port, "web.example", "/api", &[]).ok().filter(|a| a.status == 200));
    let (server, admin) = (format!("127.0.0.1:{}", plane.http_port), envoy.admin_address());
    let of_envoy = |what: &[&str]| said(&[&["pc"], what, &["--envoy-admin", &admin]].concat());
    let of_server = |what: &[&str]| said(&[&["pc"], what, &["client", "--http-addr", &server]].concat());

    let subset = rows(&of_server(&["cluster", "--subset", "v1"]), "v1").remove(0);
    assert_eq!(
        subset[..6],
        ["web.example", &port.to_string(), "v1", "outbound", "EDS", "web-example.shop"].map(String::from)
    );
    assert_eq!(subset[6], "ServiceEntry/web-example.shop");
    let held = rows(&of_envoy(&["cluster", "--subset", "v1"]), "v1").remove(0);
    assert_eq!((&held[..6], held[6].as_str()), (&subset[..6], "shop/web.example"));
    assert!(of_envoy(&["cluster"]).contains("xds-grpc"), "clusters of the bootstrap are shown, too");

    for text in [of_envoy(&["route"]), of_server(&["route"])] {
        let route = rows(&text, "/api*").remove(0);
        assert_eq!(route.last().map(String::as_str), Some("web.shop"), "{text}");
    }
    let listeners = of_envoy(&["listener", "--port", &port.to_string(), "--type", "HTTP"]);
    assert_eq!(rows(&listeners, "Route: ").len(), 1, "{listeners}");
    let endpoints = of_envoy(&["endpoint", "--cluster", &format!("outbound|{port}|v1|web.example")]);
    let endpoint = rows(&endpoints, "v1").remove(0);
    assert_eq!(
        endpoint[..3],
        [format!("127.0.0.1:{}", v1.port), "HEALTHY".to_string(), "OK".to_string()],
        "{endpoints}"
    );
    assert_eq!(rows(&of_server(&["endpoint"]), "|v1|").remove(0)[0], endpoint[0]);
    let bootstrap: Value = serde_json::from_str(&of_envoy(&["bootstrap"])).unwrap();
    assert_eq!(bootstrap["node"]["id"], NODE);
    assert!(of_envoy(&["bootstrap", "-o", "table"]).contains("Envoy Version:"));
    assert!(of_envoy(&["all"]).contains("------ ROUTES ------"));

    // The Envoy knows its own name.
    let compared = said(&["proxy-status", "--envoy-admin", &admin, "--http-addr", &server]);
    assert_eq!(compared, "Clusters Match\nListeners Match\nRoutes Match\n");
    envoy.assert_no_nacks();
}
