//! A control plane with a config folder, and real Envoys connected to it.

use std::{ffi::OsString, fs, path::PathBuf, process::Command};

use serde_json::Value;

pub use crate::envoy::Envoy;
use crate::{
    http,
    process::{Process, free_port, scratch, wait_for},
};

/// A running `pilothouse serve`.
pub struct ControlPlane {
    pub process: Process,
    /// Its folder, where it has one.
    pub configs: PathBuf,
    pub grpc_port: u16,
    pub http_port: u16,
    arguments: Vec<OsString>,
    environment: Vec<(String, String)>,
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
        Self::launch_with(configs, arguments, &[])
    }

    /// As [`ControlPlane::launch`], with environment variables.
    pub fn launch_with(configs: PathBuf, arguments: &[OsString], environment: &[(&str, &str)]) -> Self {
        let (grpc_port, http_port, arguments) = (free_port(), free_port(), arguments.to_vec());
        let environment: Vec<_> = environment.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
        let process = Self::spawn(&arguments, &environment, grpc_port, http_port);
        Self { process, configs, grpc_port, http_port, arguments, environment }
    }

    fn spawn(arguments: &[OsString], environment: &[(String, String)], grpc_port: u16, http_port: u16) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.arg("serve").args(arguments).envs(environment.iter().cloned());
        command.args(["--grpc-addr", &format!("127.0.0.1:{grpc_port}")]);
        command.args(["--http-addr", &format!("127.0.0.1:{http_port}"), "--monitoring-addr", "127.0.0.1:0"]);
        Process::start("pilothouse", &mut command)
    }

    /// Starts it again, after it was killed, on the same ports.
    pub fn restart(&mut self) {
        self.process = Self::spawn(&self.arguments, &self.environment, self.grpc_port, self.http_port);
        self.wait_ready();
    }

    /// Starts another process beside it, on the same ports; gives the one before.
    pub fn succeed(&mut self) -> Process {
        let next = Self::spawn(&self.arguments, &self.environment, self.grpc_port, self.http_port);
        std::mem::replace(&mut self.process, next)
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

impl Envoy {
    /// Starts Envoy as this node and waits until it is live.
    pub fn start(plane: &ControlPlane, node: &str, metadata: &Value, delta: bool) -> Self {
        Self::connect(plane.grpc_port, node, metadata, delta)
    }
}
