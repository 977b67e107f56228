//! Destinations of proxyless gRPC that are no list of IPv4 addresses: DNS names, ExternalName services, IPv6, ports without
//! HTTP.

use std::{collections::BTreeMap, fs, net::TcpListener};

use serde_json::{Value, json};

use crate::{
    config::{document, object, service, subsets, to},
    grpc::{Client, GO, Grpc, HOST, JAVA, OLDER_GO, OLDER_JAVA, bootstrap, serve_at, server},
    mesh::ControlPlane,
    process::{free_port, wait_until},
    skipped::skipped,
};

const ALL: [Grpc; 6] = [Grpc::Python, Grpc::JavaScript, GO, OLDER_GO, JAVA, OLDER_JAVA];
const EXTERNAL: &str = "external.shop.svc.cluster.local";
const NOT_APPLIED: &str = "pilothouse_grpc_config_not_applied";

/// A ServiceEntry of a gRPC port whose endpoints are these.
pub fn resolved(host: &str, port: u16, resolution: &str, endpoints: &Value) -> String {
    let mut spec = json!({
        "hosts": [host], "location": "MESH_INTERNAL", "resolution": resolution,
        "ports": [{"number": port, "name": "grpc", "protocol": "GRPC"}],
    });
    if !endpoints.is_null() {
        spec["endpoints"] = endpoints.clone();
    }
    object("ServiceEntry", &format!("{}-{port}", host.replace('.', "-")), &spec)
}

pub fn at(address: &str, port: u16, version: &str) -> Value {
    json!({"address": address, "ports": {"grpc": port}, "labels": {"version": version}})
}

fn client(grpc: Grpc, plane: &ControlPlane, target: &str) -> Option<Client> {
    Some(Client::start(grpc.client(&format!("xds:///{target}"))?, &bootstrap(plane, "caller", "10.9.9.9")))
}

fn all(name: &str, times: u32) -> BTreeMap<String, u32> {
    BTreeMap::from([(name.to_string(), times)])
}

/// The message at the only object of this kind and name that the page of statuses has, once it has one.
fn told_at(plane: &ControlPlane, kind: &str, name: &str) -> String {
    wait_until(&format!("{kind} {name} is told"), || {
        let rows = plane.debug("/debug/statusz");
        let of_object = |row: &&Value| row["kind"] == kind && row["name"] == name;
        let row = rows.as_array().unwrap().iter().find(of_object).cloned().unwrap_or_default();
        let condition = &row["status"]["conditions"][0];
        match (condition["status"].as_str(), condition["reason"].as_str()) {
            (Some("False"), Some("NotEnforced")) => Ok(condition["message"].as_str().unwrap().to_string()),
            _ => Err(row.to_string()),
        }
    })
}

/// Names of subsets with ports of their own, and an ExternalName service.
fn calls_names(grpc: Grpc) {
    let (one, two) = (free_port(), free_port());
    let (_one, _two) = (server("one", one, None), server("two", two, None));
    let named = json!([at("localhost", one, "v1"), at("localhost", two, "v2")]);
    let routes = json!({"hosts": [HOST], "http": [
        {"match": [{"headers": {"x-lane": {"exact": "blue"}}}], "route": [to(HOST, "v2")]}, {"route": [to(HOST, "v1")]},
    ]});
    let external =
        json!({"type": "ExternalName", "externalName": "localhost", "ports": [{"name": "grpc", "port": two}]});
    let plane = ControlPlane::start(&[
        (
            "echo.yaml",
            resolved(HOST, 9000, "DNS", &named) + &subsets(HOST) + &object("VirtualService", "echo", &routes),
        ),
        ("external.yaml", document("v1", "Service", "external", &external)),
    ]);
    let Some(mut echo) = client(grpc, &plane, &format!("{HOST}:9000")) else { return };
    assert_eq!(echo.call(20, ""), all("one", 20), "{grpc:?}");
    assert_eq!(echo.call(20, "x-lane=blue"), all("two", 20), "{grpc:?}");
    let mut of_external = client(grpc, &plane, &format!("{EXTERNAL}:{two}")).unwrap();
    assert_eq!(of_external.call(20, ""), all("two", 20), "{grpc:?}");
    assert_eq!(plane.debug("/debug/push_status"), json!({}), "{grpc:?}: nothing is refused or left out");
}

#[test]
fn names_are_resolved_by_all_clients() {
    for grpc in ALL {
        calls_names(grpc);
    }
}

/// Without endpoints the host itself is resolved.
#[test]
fn a_host_without_endpoints_is_resolved() {
    let port = free_port();
    let _server = server("one", port, None);
    let entry = |resolution| resolved("localhost", port, resolution, &Value::Null);
    for (grpc, resolution) in [(Grpc::Python, "DNS"), (GO, "NONE"), (JAVA, "DNS_ROUND_ROBIN"), (Grpc::Python, "NONE")] {
        let plane = ControlPlane::start(&[("echo.yaml", entry(resolution))]);
        let Some(mut client) = client(grpc, &plane, &format!("localhost:{port}")) else { continue };
        assert_eq!(client.call(20, ""), all("one", 20), "{grpc:?}, {resolution}");
        assert_eq!(plane.debug("/debug/push_status"), json!({}), "{grpc:?}: nothing is refused or left out");
    }
}

/// A service moves from addresses to a name and back under the client's eyes, and no call fails. Of several names one is called,
/// and the others are told at the ServiceEntry while the client is there.
fn follows_the_resolution(grpc: Grpc) {
    let (one, two) = (free_port(), free_port());
    let (_one, _two) = (server("one", one, None), server("two", two, None));
    let entry = |resolution: &str, endpoints: &[Value]| resolved(HOST, 9000, resolution, &json!(endpoints));
    let fixed = entry("STATIC", &[at("127.0.0.1", one, "v1")]);
    let plane = ControlPlane::start(&[("echo.yaml", fixed.clone())]);
    let Some(mut client) = client(grpc, &plane, &format!("{HOST}:9000")) else { return };
    let mut until = |what: &str, want: &[&str]| {
        wait_until(what, || {
            let counts = client.call(20, "");
            assert!(counts.keys().all(|answer| !answer.starts_with("error")), "{grpc:?}, {what}: {counts:?}");
            if counts.keys().map(String::as_str).eq(want.iter().copied()) { Ok(()) } else { Err(format!("{counts:?}")) }
        });
    };
    until("the address is called", &["one"]);
    plane.write("echo.yaml", &entry("DNS", &[at("localhost", two, "v1")]));
    until("the name is called", &["two"]);
    plane.write("echo.yaml", &entry("DNS", &[at("127.0.0.1", one, "v1"), at("127.0.0.1", two, "v1")]));
    until("addresses that need no DNS are all called", &["one", "two"]);
    assert_eq!(plane.debug("/debug/push_status"), json!({}), "{grpc:?}");
    plane.write("echo.yaml", &entry("DNS", &[at("localhost", one, "v1"), at("localhost", two, "v1")]));
    until("one name of two is called", &["one"]);
    let name = format!("{}-9000", HOST.replace('.', "-"));
    let told = told_at(&plane, "ServiceEntry", &name);
    assert!(told.contains(&format!("calls go to localhost:{one}, and none to localhost:{two}")), "{told}");
    let log = fs::read_to_string(&plane.process.log).unwrap();
    assert_eq!(log.matches("proxyless gRPC resolves one DNS name alone").count(), 1, "told once: {log}");
    plane.write("echo.yaml", &fixed);
    until("the address is called again", &["one"]);
    wait_until("nothing is told any more", || {
        let told = plane.debug("/debug/push_status");
        if told == json!({}) { Ok(()) } else { Err(told.to_string()) }
    });
}

#[test]
fn changes_of_the_resolution_fail_no_call() {
    for grpc in [Grpc::Python, GO, JAVA] {
        follows_the_resolution(grpc);
    }
}

/// A port of TCP cannot be called: the ServiceEntry, the log and the page of the connection say it, once a client names it.
#[test]
fn ports_without_http_are_told_when_a_client_names_them() {
    let port = free_port();
    let raw = json!({"clusterIP": "10.96.0.9", "ports": [{"name": "tcp-raw", "port": 7000}]});
    let plane = ControlPlane::start(&[
        ("echo.yaml", service(HOST, 9000, "TCP", &[(port, "v1", "")])),
        ("raw.yaml", document("v1", "Service", "raw", &raw)),
    ]);
    assert_eq!(plane.debug("/debug/push_status"), json!({}), "no client names it");
    for grpc in [Grpc::Python, GO, JAVA] {
        for host in [HOST, "raw.shop.svc.cluster.local:7000"] {
            let target = if host == HOST { format!("{HOST}:9000") } else { host.to_string() };
            let Some(mut client) = client(grpc, &plane, &target) else { continue };
            let answer = client.attempt();
            assert!(answer.starts_with("error"), "{grpc:?}: {answer}");
        }
    }
    let mut python = client(Grpc::Python, &plane, &format!("{HOST}:9000")).unwrap();
    python.attempt();
    let told = told_at(&plane, "ServiceEntry", &HOST.replace('.', "-"));
    assert!(told.contains("is of protocol TCP") && told.contains("protocol: GRPC"), "{told}");
    let mut of_service = client(Grpc::Python, &plane, "raw.shop.svc.cluster.local:7000").unwrap();
    of_service.attempt();
    let resource = "outbound|7000||raw.shop.svc.cluster.local";
    wait_until("the page of the connections has both", || {
        let told = plane.debug("/debug/push_status");
        let message = told[NOT_APPLIED][resource]["message"].as_str().unwrap_or_default();
        if message.contains("appProtocol: grpc") { Ok(()) } else { Err(told.to_string()) }
    });
    let page = plane.debug("/debug/adsz");
    let left_out: Vec<_> =
        page["clients"].as_array().unwrap().iter().flat_map(|c| c["leftOut"].as_array().cloned().unwrap()).collect();
    assert!(left_out.iter().any(|of| of["resource"] == resource && of["object"].is_string()), "{page}");
    let log = fs::read_to_string(&plane.process.log).unwrap();
    assert!(log.contains("is of protocol TCP"), "{log}");
}

#[test]
fn ipv6_endpoints_are_called() {
    if TcpListener::bind("[::1]:0").is_err() {
        return skipped("this machine has no address ::1");
    }
    let port = free_port();
    let _server = serve_at(Grpc::Python.server().unwrap(), "six", &format!("[::1]:{port}"), None);
    let by_name = "six.shop.svc.cluster.local";
    let plane = ControlPlane::start(&[
        ("echo.yaml", resolved(HOST, 9000, "STATIC", &json!([at("::1", port, "v1")]))),
        ("dns.yaml", resolved(by_name, 9000, "DNS", &json!([at("::1", port, "v1")]))),
    ]);
    for grpc in ALL {
        for host in [HOST, by_name] {
            let Some(command) = grpc.client(&format!("xds:///{host}:9000")) else { continue };
            let mut client = Client::start(command, &bootstrap(&plane, "caller", "fd00::9"));
            assert_eq!(client.call(20, ""), all("six", 20), "{grpc:?}");
        }
    }
    assert_eq!(plane.debug("/debug/push_status"), json!({}), "a client refused config");
}
