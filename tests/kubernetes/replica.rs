//! Control planes that are processes of their own: these can be killed.

use std::{net::SocketAddr, path::Path, process::Stdio};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::stage::DEADLINE;

/// A process that writes statuses; killed when dropped.
pub struct Replica {
    child: Child,
    /// Where it serves xDS.
    pub grpc: SocketAddr,
}

impl Replica {
    /// Starts it on a cluster, under this name, and waits until it listens.
    pub async fn start(kubeconfig: &Path, name: &str, environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(["serve", "--write-status", "--trust-loopback", "--log-format", "json"]);
        command.args(["--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--monitoring-addr", ""]);
        command.arg("--kubeconfig").arg(kubeconfig).env("POD_NAME", name).envs(environment.iter().copied());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let listens = async {
            loop {
                let line = lines.next_line().await.unwrap().expect("it ended");
                let line: Value = serde_json::from_str(&line).unwrap_or_default();
                if let Some(address) = line["grpc"].as_str() {
                    return address.parse().unwrap();
                }
            }
        };
        let grpc = tokio::time::timeout(DEADLINE, listens).await.unwrap();
        // A process blocks when its log is not read.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, grpc }
    }

    /// Ends it as a crash would.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}
