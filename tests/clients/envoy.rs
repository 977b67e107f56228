//! Real Envoys, each a process of its own.

use std::{
    ffi::OsStr,
    fs,
    path::Path,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use serde_json::Value;

use crate::{
    http,
    process::{Process, free_port, scratch, wait_for},
    tools::{OLDEST_ENVOY, TOOLS},
};

/// A real Envoy that gets its config from a control plane.
pub struct Envoy {
    pub process: Process,
    admin_port: u16,
}

static BASE_ID: AtomicU32 = AtomicU32::new(0);

impl Envoy {
    /// Starts Envoy as this node, with the control plane on this port of this machine, and waits until it is live.
    pub fn connect(grpc_port: u16, node: &str, metadata: &Value, delta: bool) -> Self {
        Self::connect_any(&[grpc_port], node, metadata, delta)
    }

    /// As [`Envoy::connect`], with a control plane on each of these ports; it is connected to one at a time.
    pub fn connect_any(grpc_ports: &[u16], node: &str, metadata: &Value, delta: bool) -> Self {
        Self::launch(&TOOLS.envoy, grpc_ports, node, metadata, delta)
    }

    /// As [`Envoy::connect`], of the oldest supported version.
    pub fn oldest(grpc_port: u16, node: &str, metadata: &Value, delta: bool) -> Self {
        Self::launch(&OLDEST_ENVOY, &[grpc_port], node, metadata, delta)
    }

    /// As [`Envoy::connect`], over TLS with more arguments of `bootstrap`.
    pub fn secure(grpc_port: u16, node: &str, metadata: &Value, arguments: &[&OsStr]) -> Self {
        Self::launch_with(&TOOLS.envoy, &[grpc_port], node, metadata, (true, arguments))
    }

    fn launch(binary: &Path, grpc_ports: &[u16], node: &str, metadata: &Value, delta: bool) -> Self {
        Self::launch_with(binary, grpc_ports, node, metadata, (delta, &[]))
    }

    fn launch_with(
        binary: &Path,
        grpc_ports: &[u16],
        node: &str,
        metadata: &Value,
        (delta, arguments): (bool, &[&OsStr]),
    ) -> Self {
        let folder = scratch();
        fs::write(folder.join("metadata.json"), metadata.to_string()).unwrap();
        let mut bootstrap = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        bootstrap.args(["bootstrap", "envoy", "--node", node, "--metadata"]).arg(folder.join("metadata.json"));
        bootstrap.arg("--xds-address").arg(format!("127.0.0.1:{}", grpc_ports[0]));
        bootstrap.args(arguments);
        if delta {
            bootstrap.arg("--delta");
        }
        let output = bootstrap.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut config: Value = serde_json::from_slice(&output.stdout).unwrap();
        let servers = &mut config["static_resources"]["clusters"][0]["load_assignment"]["endpoints"][0]["lb_endpoints"];
        let mut next = servers[0].clone();
        for port in &grpc_ports[1..] {
            next["endpoint"]["address"]["socket_address"]["port_value"] = (*port).into();
            servers.as_array_mut().unwrap().push(next.clone());
        }
        let admin_port = free_port();
        config["admin"]["address"]["socket_address"]["port_value"] = admin_port.into();
        fs::write(folder.join("envoy.json"), config.to_string()).unwrap();
        let mut command = Command::new(binary);
        let base = std::process::id() % 30_000 * 64 + BASE_ID.fetch_add(1, Ordering::Relaxed);
        // Paths of sockets may be relative.
        command.current_dir(&folder);
        command.arg("-c").arg(folder.join("envoy.json")).args(["--concurrency", "1", "--base-id", &base.to_string()]);
        command.args(["--log-level", "warning", "--drain-time-s", "1", "--drain-strategy", "immediate"]);
        let envoy = Self { process: Process::start("envoy", &mut command), admin_port };
        wait_for("Envoy is live", || {
            http::get(admin_port, "localhost", "/ready", &[]).ok().filter(|a| a.body.trim() == "LIVE")
        });
        envoy
    }

    /// Whether the configuration in force names this.
    pub fn holds(&self, text: &str) -> bool {
        let dump = http::get(self.admin_port, "localhost", "/config_dump?resource=dynamic_listeners", &[]);
        dump.is_ok_and(|answer| answer.body.contains(text))
    }

    /// One statistic; 0 when Envoy does not know it.
    pub fn stat(&self, name: &str) -> u64 {
        let answer = http::get(self.admin_port, "localhost", &format!("/stats?filter=^{name}$"), &[]).unwrap();
        answer.body.trim().rsplit_once(": ").and_then(|(_, n)| n.parse().ok()).unwrap_or(0)
    }

    /// Everything that Envoy refused so far, with its reasons. Every test expects none.
    pub fn rejected(&self) -> String {
        let stats = http::get(self.admin_port, "localhost", "/stats?filter=update_rejected", &[]).unwrap().body;
        let counted: Vec<&str> = stats.lines().filter(|l| !l.ends_with(": 0")).collect();
        if counted.is_empty() { String::new() } else { format!("{counted:?}\n{}", self.process.tail()) }
    }

    /// Fails the test if Envoy refused anything.
    pub fn assert_no_nacks(&self) {
        assert_eq!(self.rejected(), "", "Envoy refused config");
    }
}
