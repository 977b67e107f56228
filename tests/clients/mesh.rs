//! A control plane with a config folder, and real Envoys connected to it.

use std::{
    ffi::OsString,
    fs,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use serde_json::Value;

use crate::{
    http,
    process::{Process, free_port, scratch, wait_for},
    tools::TOOLS,
};

/// A running `pilothouse serve`.
pub struct ControlPlane {
    pub process: Process,
    /// Its folder, where it has one.
    pub configs: PathBuf,
    pub grpc_port: u16,
    pub http_port: u16,
    arguments: Vec<OsString>,
}

impl ControlPlane {
    /// Starts it on a folder with these files (`name.yaml`, content) and waits until it is ready.
    pub fn start(files: &[(&str, String)]) -> Self {
        let configs = folder(files);
        let plane = Self::launch(configs.clone(), &["--config-dir".into(), configs.into()]);
        plane.wait_ready();
        plane
    }

    /// Starts it with these arguments; `configs` is the folder that [`ControlPlane::write`] writes to.
    pub fn launch(configs: PathBuf, arguments: &[OsString]) -> Self {
        let (grpc_port, http_port, arguments) = (free_port(), free_port(), arguments.to_vec());
        let process = Self::spawn(&arguments, grpc_port, http_port);
        Self { process, configs, grpc_port, http_port, arguments }
    }

    fn spawn(arguments: &[OsString], grpc_port: u16, http_port: u16) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.arg("serve").args(arguments);
        command.args(["--grpc-addr", &format!("127.0.0.1:{grpc_port}")]);
        command.args(["--http-addr", &format!("127.0.0.1:{http_port}"), "--monitoring-addr", "127.0.0.1:0"]);
        Process::start("pilothouse", &mut command)
    }

    /// Starts it again, after it was killed, on the same ports.
    pub fn restart(&mut self) {
        self.process = Self::spawn(&self.arguments, self.grpc_port, self.http_port);
        self.wait_ready();
    }

    pub fn wait_ready(&self) {
        wait_for("the control plane is ready", || {
            http::get(self.http_port, "localhost", "/ready", &[]).ok().filter(|a| a.status == 200)
        });
    }

    /// Kills it as a crash would, and starts it again on the same ports.
    pub fn crash_and_restart(&mut self) {
        self.process.kill();
        self.restart();
    }

    /// Writes a file as editors do: beside it, then by rename.
    pub fn write(&self, name: &str, text: &str) {
        let beside = self.configs.join(format!(".{name}.new"));
        fs::write(&beside, text).unwrap();
        fs::rename(beside, self.configs.join(name)).unwrap();
    }

    /// A debug page as JSON.
    pub fn debug(&self, path: &str) -> Value {
        let answer = http::get(self.http_port, "localhost", path, &[]).unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    }
}

/// A folder with these files (`name.yaml`, content).
pub fn folder(files: &[(&str, String)]) -> PathBuf {
    let configs = scratch();
    for (name, text) in files {
        fs::write(configs.join(name), text).unwrap();
    }
    configs
}

/// A real Envoy that gets its config from a control plane.
pub struct Envoy {
    pub process: Process,
    admin_port: u16,
}

static BASE_ID: AtomicU32 = AtomicU32::new(0);

impl Envoy {
    /// Starts Envoy as this node and waits until it is live.
    pub fn start(plane: &ControlPlane, node: &str, metadata: &Value, delta: bool) -> Self {
        let folder = scratch();
        fs::write(folder.join("metadata.json"), metadata.to_string()).unwrap();
        let mut bootstrap = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        bootstrap.args(["bootstrap", "envoy", "--node", node, "--metadata"]).arg(folder.join("metadata.json"));
        bootstrap.arg("--xds-address").arg(format!("127.0.0.1:{}", plane.grpc_port));
        if delta {
            bootstrap.arg("--delta");
        }
        let output = bootstrap.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut config: Value = serde_json::from_slice(&output.stdout).unwrap();
        let admin_port = free_port();
        config["admin"]["address"]["socket_address"]["port_value"] = admin_port.into();
        fs::write(folder.join("envoy.json"), config.to_string()).unwrap();
        let mut command = Command::new(&TOOLS.envoy);
        let base = std::process::id() % 30_000 * 64 + BASE_ID.fetch_add(1, Ordering::Relaxed);
        command.arg("-c").arg(folder.join("envoy.json")).args(["--concurrency", "1", "--base-id", &base.to_string()]);
        command.args(["--log-level", "warning", "--drain-time-s", "1", "--drain-strategy", "immediate"]);
        let envoy = Self { process: Process::start("envoy", &mut command), admin_port };
        wait_for("Envoy is live", || {
            http::get(admin_port, "localhost", "/ready", &[]).ok().filter(|a| a.body.trim() == "LIVE")
        });
        envoy
    }

    /// One statistic; 0 when Envoy does not know it.
    pub fn stat(&self, name: &str) -> u64 {
        let answer = http::get(self.admin_port, "localhost", &format!("/stats?filter=^{name}$"), &[]).unwrap();
        answer.body.trim().rsplit_once(": ").and_then(|(_, n)| n.parse().ok()).unwrap_or(0)
    }

    /// Everything that Envoy refused so far, with its reasons. Empty is what every test wants.
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
