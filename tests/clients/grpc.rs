//! Proxyless gRPC clients and servers, in Python (C core) and JavaScript.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::json;

use crate::{
    config::{object, service, subsets, to},
    mesh::ControlPlane,
    process::{Process, free_port, scratch, wait_for},
    tools::TOOLS,
};

const HOST: &str = "echo.shop.svc.cluster.local";

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/programs").join(name)
}

/// The bootstrap of a workload `app` at `ip`.
fn bootstrap(plane: &ControlPlane, app: &str, ip: &str) -> PathBuf {
    let folder = scratch();
    let output = Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .args(["bootstrap", "grpc", "--node", &format!("sidecar~{ip}~{app}.shop~shop.svc.cluster.local")])
        .args(["--xds-address", &format!("127.0.0.1:{}", plane.grpc_port)])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = folder.join("bootstrap.json");
    fs::write(&path, output.stdout).unwrap();
    path
}

fn server(name: &str, port: u16, bootstrap: Option<&Path>) -> Process {
    let mut command = Command::new(&TOOLS.python);
    command.arg(program("grpc_server.py")).args([&port.to_string(), name]);
    if let Some(bootstrap) = bootstrap {
        command.arg("xds").env("GRPC_XDS_BOOTSTRAP", bootstrap);
    }
    let process = Process::start(name, &mut command);
    wait_for("a gRPC server is up", || process.tail().contains("started").then_some(()));
    process
}

/// A client program that makes calls as it is told.
struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn python(bootstrap: &Path, target: &str) -> Self {
        let mut command = Command::new(&TOOLS.python);
        command.arg(program("grpc_client.py")).arg(target);
        Self::start(command, bootstrap)
    }

    fn node(bootstrap: &Path, target: &str) -> Self {
        let mut command = Command::new("node");
        command.arg(program("grpc_client.js")).arg(&TOOLS.node).arg(target);
        Self::start(command, bootstrap)
    }

    fn start(mut command: Command, bootstrap: &Path) -> Self {
        command.env("GRPC_XDS_BOOTSTRAP", bootstrap).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// Makes so many calls and counts the answers.
    fn call(&mut self, times: u32, metadata: &str) -> BTreeMap<String, u32> {
        writeln!(self.input, "call {times} {metadata}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("the client answered {line:?}: {e}"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn virtual_service(v1: u32, v2: u32) -> String {
    let mut split = [to(HOST, "v1"), to(HOST, "v2")];
    split[0]["weight"] = v1.into();
    split[1]["weight"] = v2.into();
    object(
        "VirtualService",
        "echo",
        &json!({"hosts": [HOST], "http": [
            {"match": [{"headers": {"x-lane": {"exact": "blue"}}}], "route": [to(HOST, "v2")]},
            {"route": split},
        ]}),
    )
}

fn follows_routes(start: fn(&Path, &str) -> Client) {
    let (a, b) = (free_port(), free_port());
    let (_v1, _v2) = (server("v1", a, None), server("v2", b, None));
    let endpoints = [(a, "v1", ""), (b, "v2", "")];
    let base = service(HOST, 9000, "GRPC", &endpoints) + &subsets(HOST);
    let plane = ControlPlane::start(&[("echo.yaml", base.clone() + &virtual_service(75, 25))]);
    let mut client = start(&bootstrap(&plane, "caller", "10.9.9.9"), &format!("xds:///{HOST}:9000"));

    let counts = client.call(400, "");
    let v2 = counts.get("v2").copied().unwrap_or(0);
    assert!(counts.len() == 2 && (60..=140).contains(&v2), "25 % of 400 is about 100: {counts:?}");
    assert_eq!(client.call(20, "x-lane=blue"), BTreeMap::from([("v2".to_string(), 20)]));

    // A client holds a call to the cluster that its route chose. So routes leave the subset before its last endpoint goes, in two
    // changes, as with any xDS server: endpoints and routes are resources of their own, and one of them arrives first.
    let mut until = |what: &str, names: &[&str]| {
        wait_for(what, || {
            let counts = client.call(20, "");
            assert!(counts.keys().all(|k| !k.starts_with("error")), "{what}: {counts:?}");
            counts.keys().map(String::as_str).eq(names.iter().copied()).then_some(())
        });
    };
    plane.write("echo.yaml", &(base + &virtual_service(100, 0)));
    until("all calls go to the first subset", &["v1"]);
    plane.write("echo.yaml", &(service(HOST, 9000, "GRPC", &endpoints) + &subsets(HOST)));
    until("without a VirtualService both endpoints are called", &["v1", "v2"]);
    plane.write("echo.yaml", &(service(HOST, 9000, "GRPC", &endpoints[..1]) + &subsets(HOST)));
    until("the endpoint is gone, and no call fails on the way", &["v1"]);
    assert_eq!(plane.debug("/debug/push_status"), json!({}), "a client refused config");
}

#[test]
fn python_follows_weights_headers_and_endpoints() {
    follows_routes(Client::python);
}

#[test]
fn javascript_follows_weights_headers_and_endpoints() {
    follows_routes(Client::node);
}

#[test]
fn an_xds_enabled_server_serves() {
    let port = free_port();
    let plane = ControlPlane::start(&[("echo.yaml", service(HOST, 9000, "GRPC", &[(port, "v1", "")]))]);
    let _server = server("v1", port, Some(&bootstrap(&plane, "echo", "127.0.0.1")));
    let mut client = Client::python(&bootstrap(&plane, "caller", "10.9.9.9"), &format!("xds:///{HOST}:9000"));
    assert_eq!(client.call(20, ""), BTreeMap::from([("v1".to_string(), 20)]));
    assert_eq!(plane.debug("/debug/push_status"), json!({}), "a client refused config");
}
