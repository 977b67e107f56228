//! Real Envoys, each a process of its own.

use std::{
    ffi::OsStr,
    fs,
    os::unix::process::CommandExt,
    path::Path,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use serde_json::{Value, json};

use crate::{
    http::{self, Answer},
    network::{self, Machine},
    process::{Process, free_port, scratch, wait_for},
    tools::{OLDEST_ENVOY, TOOLS},
};

/// A real Envoy that gets its config from a control plane.
pub struct Envoy {
    pub process: Process,
    admin_port: u16,
    machine: Machine,
}

static BASE_ID: AtomicU32 = AtomicU32::new(0);

impl Envoy {
    /// Starts Envoy as this node, with the control plane on this port of this machine, and waits until it is live.
    pub fn connect(grpc_port: u16, node: &str, metadata: &Value, delta: bool) -> Self {
        Self::connect_any(&[grpc_port], node, metadata, delta)
    }

    /// As [`Envoy::connect`], with a control plane on each of these ports; it is connected to one at a time.
    pub fn connect_any(grpc_ports: &[u16], node: &str, metadata: &Value, delta: bool) -> Self {
        Launch { delta, ..Launch::new(grpc_ports, node, metadata) }.start()
    }

    /// As [`Envoy::connect`], of the oldest supported version.
    pub fn oldest(grpc_port: u16, node: &str, metadata: &Value, delta: bool) -> Self {
        Launch { delta, binary: &OLDEST_ENVOY, ..Launch::new(&[grpc_port], node, metadata) }.start()
    }

    /// Starts Envoy with listeners and clusters of the test's own, without a control plane.
    pub fn alone(listeners: &Value, clusters: &Value) -> Self {
        let admin = json!({"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}});
        let resources = json!({"listeners": listeners, "clusters": clusters});
        run(&TOOLS.envoy, json!({"admin": admin, "static_resources": resources}), &Machine::default())
    }

    /// One statistic; 0 when Envoy does not know it.
    pub fn stat(&self, name: &str) -> u64 {
        let answer = self.admin(&format!("/stats?filter=^{name}$")).unwrap();
        answer.body.trim().rsplit_once(": ").and_then(|(_, n)| n.parse().ok()).unwrap_or(0)
    }

    /// Whether the configuration in force names this.
    pub fn holds(&self, text: &str) -> bool {
        self.admin("/config_dump?resource=dynamic_listeners").is_ok_and(|answer| answer.body.contains(text))
    }

    /// Everything that Envoy refused so far, with its reasons. Every test expects none.
    pub fn rejected(&self) -> String {
        let stats = self.admin("/stats?filter=update_rejected").unwrap().body;
        let counted: Vec<&str> = stats.lines().filter(|l| !l.ends_with(": 0")).collect();
        if counted.is_empty() { String::new() } else { format!("{counted:?}\n{}", self.process.tail()) }
    }

    /// Fails the test if Envoy refused anything.
    pub fn assert_no_nacks(&self) {
        assert_eq!(self.rejected(), "", "Envoy refused config");
    }

    /// Address of its admin interface.
    pub fn admin_address(&self) -> String {
        format!("127.0.0.1:{}", self.admin_port)
    }

    /// A page of its admin interface.
    pub fn admin(&self, path: &str) -> std::io::Result<Answer> {
        self.machine.within(|| http::get(self.admin_port, "localhost", path, &[]))
    }
}

/// The start of an Envoy.
pub struct Launch<'a> {
    pub binary: &'a Path,
    /// Address of the control plane, and its ports; it is connected to one at a time.
    pub host: &'a str,
    pub grpc_ports: &'a [u16],
    /// Unix socket of the control plane, in place of its address.
    pub socket: Option<&'a Path>,
    pub node: &'a str,
    pub metadata: &'a Value,
    pub delta: bool,
    /// More arguments of `bootstrap`.
    pub arguments: &'a [&'a OsStr],
    pub machine: Machine,
    /// Changes the bootstrap.
    pub bootstrap: &'a dyn Fn(&mut Value),
}

impl<'a> Launch<'a> {
    /// Of the newest version on this machine, with the control plane beside it.
    pub fn new(grpc_ports: &'a [u16], node: &'a str, metadata: &'a Value) -> Self {
        let (machine, host) = (Machine::default(), "127.0.0.1");
        Self {
            binary: &TOOLS.envoy,
            host,
            grpc_ports,
            socket: None,
            node,
            metadata,
            delta: true,
            arguments: &[],
            machine,
            bootstrap: &|_| (),
        }
    }

    /// Starts it and waits until it is live.
    pub fn start(&self) -> Envoy {
        let folder = scratch();
        fs::write(folder.join("metadata.json"), self.metadata.to_string()).unwrap();
        let mut bootstrap = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        bootstrap.args(["bootstrap", "envoy", "--node", self.node, "--metadata"]).arg(folder.join("metadata.json"));
        let address = match self.socket {
            Some(path) => format!("unix:{}", path.display()),
            None => format!("{}:{}", self.host, self.grpc_ports[0]),
        };
        bootstrap.arg("--xds-address").arg(address);
        bootstrap.args(self.arguments);
        if self.delta {
            bootstrap.arg("--delta");
        }
        let output = bootstrap.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut config: Value = serde_json::from_slice(&output.stdout).unwrap();
        let servers = &mut config["static_resources"]["clusters"][0]["load_assignment"]["endpoints"][0]["lb_endpoints"];
        let mut next = servers[0].clone();
        for port in self.grpc_ports.iter().skip(1) {
            next["endpoint"]["address"]["socket_address"]["port_value"] = (*port).into();
            servers.as_array_mut().unwrap().push(next.clone());
        }
        (self.bootstrap)(&mut config);
        run(self.binary, config, &self.machine)
    }
}

/// An Envoy with this bootstrap, once it is live.
fn run(binary: &Path, mut config: Value, machine: &Machine) -> Envoy {
    let (folder, admin_port) = (scratch(), free_port());
    config["admin"]["address"]["socket_address"]["port_value"] = admin_port.into();
    fs::write(folder.join("envoy.json"), config.to_string()).unwrap();
    let mut command = Command::new(binary);
    let base = std::process::id() % 30_000 * 64 + BASE_ID.fetch_add(1, Ordering::Relaxed);
    // Paths of sockets may be relative.
    command.current_dir(&folder);
    command.arg("-c").arg(folder.join("envoy.json")).args(["--concurrency", "1", "--base-id", &base.to_string()]);
    command.args(["--log-level", "warning", "--drain-time-s", "1", "--drain-strategy", "immediate"]);
    if machine.is_apart() {
        command.gid(network::SIDECAR_GROUP);
    }
    let process = machine.within(|| Process::start("envoy", &mut command));
    let envoy = Envoy { process, admin_port, machine: machine.clone() };
    wait_for("Envoy is live", || envoy.admin("/ready").ok().filter(|a| a.body.trim() == "LIVE"));
    envoy
}
