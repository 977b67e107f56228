//! Proxyless gRPC clients and servers: Python (C core), JavaScript, Go and Java, the latter two in two versions each.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    config::{object, service, subsets, to},
    grpc_outages::is_race_of_go,
    mesh::ControlPlane,
    process::{Process, free_port, scratch, wait_for},
    tools::{self, TOOLS, program},
};

pub const HOST: &str = "echo.shop.svc.cluster.local";

/// The bootstrap of a workload `app` at `ip`.
pub fn bootstrap(plane: &ControlPlane, app: &str, ip: &str) -> PathBuf {
    bootstrap_with(plane, app, ip, &json!({}))
}

/// As [`bootstrap`], of a node with this metadata.
pub fn bootstrap_with(plane: &ControlPlane, app: &str, ip: &str, metadata: &Value) -> PathBuf {
    bootstrap_from(&format!("127.0.0.1:{}", plane.grpc_port), (app, ip), metadata, &[])
}

/// As [`bootstrap_with`], from this address of the control plane and with more arguments of the command.
pub fn bootstrap_from(address: &str, (app, ip): (&str, &str), metadata: &Value, arguments: &[&OsStr]) -> PathBuf {
    let folder = scratch();
    fs::write(folder.join("metadata.json"), metadata.to_string()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .args(["bootstrap", "grpc", "--node", &format!("sidecar~{ip}~{app}.shop~shop.svc.cluster.local")])
        .args(["--xds-address", address, "--metadata"])
        .arg(folder.join("metadata.json"))
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = folder.join("bootstrap.json");
    fs::write(&path, output.stdout).unwrap();
    path
}

/// An implementation of gRPC, with its version where there are several.
#[derive(Debug, Clone, Copy)]
pub enum Grpc {
    Python,
    JavaScript,
    Go(&'static str),
    Java(&'static str),
}

pub const GO: Grpc = Grpc::Go("1.85.0");
pub const OLDER_GO: Grpc = Grpc::Go("1.72.2");
pub const JAVA: Grpc = Grpc::Java("1.85.1");
pub const OLDER_JAVA: Grpc = Grpc::Java("1.72.0");
const OLDEST_JAVA: Grpc = Grpc::Java("1.62.2");

impl Grpc {
    /// The program that makes calls; `None` where the toolchain is missing.
    pub fn client(self, target: &str) -> Option<Command> {
        let mut command = match self {
            Self::Python => Command::new(&TOOLS.python),
            Self::JavaScript => Command::new("node"),
            Self::Go(_) | Self::Java(_) => self.echo("client")?,
        };
        match self {
            Self::Python => command.arg(program("grpc_client.py")),
            Self::JavaScript => command.arg(program("grpc_client.js")).arg(&TOOLS.node),
            Self::Go(_) | Self::Java(_) => &mut command,
        }
        .arg(target);
        Some(command)
    }

    /// The program that serves.
    pub fn server(self) -> Option<Command> {
        let mut command = match self {
            Self::Python | Self::JavaScript => Command::new(&TOOLS.python),
            Self::Go(_) | Self::Java(_) => return self.echo("server"),
        };
        command.arg(program("grpc_server.py"));
        Some(command)
    }

    fn echo(self, role: &str) -> Option<Command> {
        let mut command = match self {
            Self::Go(version) => Command::new(tools::go(version)?),
            Self::Java(version) => {
                let built = tools::java(version)?;
                let mut java = Command::new("java");
                java.args(tools::JAVA_STARTS_FAST)
                    .arg("-cp")
                    .arg(format!("{0}/classes:{0}/dependency/*", built.display()))
                    .arg("Echo");
                java
            }
            Self::Python | Self::JavaScript => return None,
        };
        command.arg(role);
        Some(command)
    }
}

pub fn server(name: &str, port: u16, bootstrap: Option<&Path>) -> Process {
    serve(Grpc::Python.server().unwrap(), name, port, bootstrap)
}

pub fn serve(command: Command, name: &str, port: u16, bootstrap: Option<&Path>) -> Process {
    serve_at(command, name, &port.to_string(), bootstrap)
}

/// As [`serve`], at an address that only the Python program takes.
pub fn serve_at(mut command: Command, name: &str, address: &str, bootstrap: Option<&Path>) -> Process {
    command.args([address, name]);
    if let Some(bootstrap) = bootstrap {
        command.arg("xds").env("GRPC_XDS_BOOTSTRAP", bootstrap);
    }
    let process = Process::start(name, &mut command);
    wait_for("a gRPC server is up", || process.tail().contains("started").then_some(()));
    process
}

/// A client program that makes calls as it is told.
pub struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    pub fn start(mut command: Command, bootstrap: &Path) -> Self {
        command.env("GRPC_XDS_BOOTSTRAP", bootstrap).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// Makes so many calls and counts the answers.
    pub fn call(&mut self, times: u32, metadata: &str) -> BTreeMap<String, u32> {
        self.ask(&format!("call {times} {metadata}"))
    }

    /// As [`Client::call`], once, without waiting for a channel that is not ready.
    pub fn attempt(&mut self) -> String {
        self.ask("try 1").into_keys().next().unwrap()
    }

    /// Makes so many calls at once, which only the Java program does.
    pub fn burst(&mut self, times: u32) -> BTreeMap<String, u32> {
        self.ask(&format!("burst {times}"))
    }

    fn ask(&mut self, command: &str) -> BTreeMap<String, u32> {
        writeln!(self.input, "{command}").unwrap();
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

/// The answers but those of gRPC-Go that chose a new cluster by a new route a moment before its own balancer knew the cluster
/// ([`is_race_of_go`]): these are told on stderr.
fn without_own_races(grpc: Grpc, when: &str, counts: BTreeMap<String, u32>) -> BTreeMap<String, u32> {
    let (own, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
        counts.into_iter().partition(|(answer, _)| is_race_of_go(grpc, answer));
    let own: u32 = own.values().sum();
    if own > 0 {
        let _ = writeln!(
            std::io::stderr(),
            "gRPC-Go, {when}: {own} calls chose a cluster that its balancer did not know yet"
        );
    }
    others
}

fn follows_routes(grpc: Grpc) {
    let Some(command) = grpc.client(&format!("xds:///{HOST}:9000")) else { return };
    let (a, b) = (free_port(), free_port());
    let (_v1, _v2) = (server("v1", a, None), server("v2", b, None));
    let endpoints = [(a, "v1", ""), (b, "v2", "")];
    let base = service(HOST, 9000, "GRPC", &endpoints) + &subsets(HOST);
    let plane = ControlPlane::start(&[("echo.yaml", base.clone() + &virtual_service(75, 25))]);
    let mut client = Client::start(command, &bootstrap(&plane, "caller", "10.9.9.9"));

    let counts = client.call(400, "");
    let v2 = counts.get("v2").copied().unwrap_or(0);
    assert!(counts.len() == 2 && (60..=140).contains(&v2), "25 % of 400 is about 100: {counts:?}");
    assert_eq!(client.call(20, "x-lane=blue"), BTreeMap::from([("v2".to_string(), 20)]));

    // A client holds a call to the cluster that its route chose. So routes leave the subset before its last endpoint goes, in two
    // changes, as with any xDS server: endpoints and routes are resources of their own, and one of them arrives first.
    let mut until = |what: &str, names: &[&str]| {
        wait_for(what, || {
            let counts = without_own_races(grpc, what, client.call(20, ""));
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
    follows_routes(Grpc::Python);
}

#[test]
fn javascript_follows_weights_headers_and_endpoints() {
    follows_routes(Grpc::JavaScript);
}

#[test]
fn go_follows_weights_headers_and_endpoints() {
    follows_routes(GO);
}

#[test]
fn an_older_go_follows_weights_headers_and_endpoints() {
    follows_routes(OLDER_GO);
}

#[test]
fn java_follows_weights_headers_and_endpoints() {
    follows_routes(JAVA);
}

#[test]
fn an_older_java_follows_weights_headers_and_endpoints() {
    follows_routes(OLDER_JAVA);
}

#[test]
fn the_oldest_java_follows_weights_headers_endpoints_and_renamed_subsets() {
    follows_routes(OLDEST_JAVA);
    outlives_a_renamed_subset(OLDEST_JAVA);
}

/// A subset is replaced by one of another name, and the routes with it: no call fails on the way.
/// gRPC-Java had the race of [`without_own_races`] too (its pull request 11947).
fn outlives_a_renamed_subset(grpc: Grpc) {
    let Some(command) = grpc.client(&format!("xds:///{HOST}:9000")) else { return };
    let port = free_port();
    let _server = server("one", port, None);
    let base = service(HOST, 9000, "GRPC", &[(port, "v1", "")]);
    let of = |round: u32| {
        let name = format!("s{round}");
        let rule = json!({"host": HOST, "subsets": [{"name": name, "labels": {"version": "v1"}}]});
        let routes = json!({"hosts": [HOST], "http": [{"route": [to(HOST, &name)]}]});
        base.clone() + &object("DestinationRule", "echo", &rule) + &object("VirtualService", "echo", &routes)
    };
    let plane = ControlPlane::start(&[("echo.yaml", of(0))]);
    let mut client = Client::start(command, &bootstrap(&plane, "caller", "10.9.9.9"));
    let mut all_succeed = |times: u32, when: &str| {
        let counts = without_own_races(grpc, when, client.call(times, ""));
        assert!(counts.keys().all(|answer| answer == "one"), "{when}: {counts:?}");
    };
    all_succeed(20, "at first");
    for round in 1..=10 {
        plane.write("echo.yaml", &of(round));
        let held = "/debug/config_dump?proxyID=caller.shop";
        wait_for("the new subset is served", || {
            all_succeed(50, &format!("round {round}"));
            plane.debug(held).to_string().contains(&format!("|s{round}|")).then_some(())
        });
        // After the change: the former subset's cluster is unsubscribed.
        all_succeed(50, &format!("after round {round}"));
    }
    assert_eq!(plane.debug("/debug/push_status"), json!({}), "a client refused config");
}

/// A service goes and comes back under the client's eyes: it is called again each time, on the stream that there is.
fn finds_a_service_that_comes_back(grpc: Grpc) {
    let Some(command) = grpc.client(&format!("xds:///{HOST}:9000")) else { return };
    let port = free_port();
    let _server = server("one", port, None);
    let there = service(HOST, 9000, "GRPC", &[(port, "v1", "")]);
    let plane = ControlPlane::start(&[("echo.yaml", there.clone())]);
    let mut client = Client::start(command, &bootstrap(&plane, "caller", "10.9.9.9"));
    let elsewhere = service("other.shop.svc.cluster.local", 9000, "GRPC", &[(port, "v1", "")]);
    for round in 0..10 {
        wait_for(&format!("the service is called, round {round}"), || (client.attempt() == "one").then_some(()));
        plane.write("echo.yaml", &elsewhere);
        wait_for(&format!("the service is gone, round {round}"), || (client.attempt() != "one").then_some(()));
        plane.write("echo.yaml", &there);
    }
}

#[test]
fn go_outlives_changes_of_named_resources() {
    outlives_a_renamed_subset(GO);
    finds_a_service_that_comes_back(GO);
    outlives_a_renamed_subset(OLDER_GO);
    finds_a_service_that_comes_back(OLDER_GO);
}

#[test]
fn java_outlives_changes_of_named_resources() {
    outlives_a_renamed_subset(JAVA);
    finds_a_service_that_comes_back(JAVA);
    outlives_a_renamed_subset(OLDER_JAVA);
    finds_a_service_that_comes_back(OLDER_JAVA);
}

#[test]
fn python_outlives_a_renamed_subset() {
    outlives_a_renamed_subset(Grpc::Python);
}

#[test]
fn javascript_outlives_a_renamed_subset() {
    outlives_a_renamed_subset(Grpc::JavaScript);
}

fn an_xds_server_serves(grpc: Grpc) {
    let (Some(server), Some(client)) = (grpc.server(), grpc.client(&format!("xds:///{HOST}:9000"))) else { return };
    let port = free_port();
    let plane = ControlPlane::start(&[("echo.yaml", service(HOST, 9000, "GRPC", &[(port, "v1", "")]))]);
    let _server = serve(server, "v1", port, Some(&bootstrap(&plane, "echo", "127.0.0.1")));
    let mut client = Client::start(client, &bootstrap(&plane, "caller", "10.9.9.9"));
    assert_eq!(client.call(20, ""), BTreeMap::from([("v1".to_string(), 20)]));
    assert_eq!(plane.debug("/debug/push_status"), json!({}), "a client refused config");
}

#[test]
fn an_xds_enabled_server_serves() {
    an_xds_server_serves(Grpc::Python);
}

#[test]
fn xds_enabled_servers_in_go_serve() {
    an_xds_server_serves(GO);
    an_xds_server_serves(OLDER_GO);
}

#[test]
fn xds_enabled_servers_in_java_serve() {
    an_xds_server_serves(JAVA);
    an_xds_server_serves(OLDER_JAVA);
}
