//! Envoy beside a workload, its listeners bound to ports (`INTERCEPTION_MODE: NONE`): HTTP, TCP, locality failover.

use std::io::Read;

use serde_json::json;

use crate::{
    config::{object, service, subsets, to},
    http::{Echo, get, tcp_echo},
    mesh::{ControlPlane, Envoy},
    process::{free_port, wait_for},
};

const NODE: &str = "sidecar~10.0.0.1~client.shop~shop.svc.cluster.local";

/// A Sidecar whose only egress listener is `port` on the loopback interface.
fn egress(port: u16, protocol: &str) -> String {
    object(
        "Sidecar",
        "client",
        &json!({"egress": [{
            "port": {"number": port, "protocol": protocol, "name": "egress"}, "bind": "127.0.0.1",
            "captureMode": "NONE", "hosts": ["./*"],
        }]}),
    )
}

fn metadata(locality: &str) -> serde_json::Value {
    json!({"INTERCEPTION_MODE": "NONE", "LABELS": {"app": "client", "istio-locality": locality}})
}

fn routes_http(delta: bool) {
    let (v1, v2, port) = (Echo::start("v1"), Echo::start("v2"), free_port());
    let text = service("web.example", port, "HTTP", &[(v1.port, "v1", ""), (v2.port, "v2", "")])
        + &subsets("web.example")
        + &egress(port, "HTTP")
        + &object(
            "VirtualService",
            "web",
            &json!({"hosts": ["web.example"], "http": [
            {"match": [{"headers": {"x-lane": {"exact": "blue"}}}], "route": [to("web.example", "v2")]},
            {"route": [to("web.example", "v1")]}]}),
        );
    let plane = ControlPlane::start(&[("shop.yaml", text)]);
    let envoy = Envoy::start(&plane, NODE, &metadata(""), delta);
    let answer = |headers: &[(&str, &str)]| get(port, "web.example", "/", headers).ok().map(|a| a.seen("name"));
    wait_for("the sidecar answers", || answer(&[]).filter(|n| n == "v1"));
    assert_eq!(answer(&[("x-lane", "blue")]).as_deref(), Some("v2"));
    envoy.assert_no_nacks();
}

#[test]
fn http_is_routed_in_state_of_the_world() {
    routes_http(false);
}

#[test]
fn http_is_routed_in_delta() {
    routes_http(true);
}

#[test]
fn tcp_goes_to_its_service() {
    let (upstream, port) = (tcp_echo("tcp-echo "), free_port());
    let text = service("tcp.example", port, "TCP", &[(upstream, "v1", "")]) + &egress(port, "TCP");
    let plane = ControlPlane::start(&[("shop.yaml", text)]);
    let envoy = Envoy::start(&plane, NODE, &metadata(""), false);
    let hello = wait_for("the TCP server speaks", || {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(std::time::Duration::from_secs(2))).ok()?;
        let mut text = [0u8; 8];
        stream.read_exact(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    });
    assert_eq!(hello, "tcp-echo");
    envoy.assert_no_nacks();
}

#[test]
fn traffic_stays_in_the_region_until_it_fails() {
    let (near, far, port) = (Echo::start("near"), Echo::start("far"), free_port());
    let text = service("web.example", port, "HTTP", &[(near.port, "v1", "eu/a"), (far.port, "v1", "us/b")])
        + &egress(port, "HTTP")
        + &object(
            "DestinationRule",
            "web",
            &json!({"host": "web.example", "trafficPolicy": {
            "outlierDetection": {"consecutive5xxErrors": 2, "interval": "1s", "baseEjectionTime": "60s", "maxEjectionPercent": 100},
            "loadBalancer": {"localityLbSetting": {"enabled": true, "failover": [{"from": "eu", "to": "us"}]}}}}),
        );
    let plane = ControlPlane::start(&[("shop.yaml", text)]);
    let envoy = Envoy::start(&plane, NODE, &metadata("eu.a"), true);
    let name = || get(port, "web.example", "/", &[]).ok().filter(|a| a.status == 200).map(|a| a.seen("name"));
    wait_for("the sidecar answers", &name);
    for _ in 0..50 {
        assert_eq!(name().as_deref(), Some("near"));
    }
    near.fail_first.store(u32::MAX, std::sync::atomic::Ordering::SeqCst);
    wait_for("the other region takes over", || (0..10).all(|_| name().as_deref() == Some("far")).then_some(()));
    envoy.assert_no_nacks();
}
