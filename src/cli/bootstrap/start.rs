//! How Envoy is started: its arguments, a systemd unit, a compose file.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use clap::ValueEnum;
use serde_json::Value;

use super::proxy::{METADATA_PREFIX, Proxy};
use crate::proto::{mesh::ProxyConfig, wkt};

/// The container image of `--format compose`, where settings ask for no other.
const IMAGE: &str = "envoyproxy/envoy";
/// Its version.
const VERSION: &str = "v1.40-latest";
/// Access logs are written so often, as Istio's agent starts Envoy; Envoy's own interval is 10 s.
const FLUSH_MILLISECONDS: i64 = 1000;

/// The form in which the start is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// The bootstrap file.
    #[default]
    Json,
    /// The arguments of Envoy that the settings stand for, beside the file: drain time, concurrency, flushing of logs.
    Args,
    /// A systemd unit and the file, in the folder of --out.
    Systemd,
    /// A compose file and the bootstrap file, in the folder of --out.
    Compose,
}

/// The start of one proxy.
#[derive(Debug)]
pub struct Start<'a> {
    /// The settings; without a mesh those of an empty one.
    pub settings: &'a ProxyConfig,
    /// Node id, for people.
    pub name: &'a str,
    /// Whether the proxy has IPv6 addresses only.
    pub ipv6: bool,
    /// The port of Envoy's own pages.
    pub admin_port: u64,
    /// The bootstrap file.
    pub file: PathBuf,
    /// Folders whose files the bootstrap names.
    pub folders: Vec<PathBuf>,
}

impl<'a> Start<'a> {
    /// That of a proxy with this bootstrap.
    pub(super) fn of(proxy: &Proxy<'a>, file: PathBuf, bootstrap: &Value, secrets: &Value) -> Self {
        let mut folders: Vec<PathBuf> = file.parent().map(Path::to_path_buf).into_iter().collect();
        for document in [bootstrap, secrets] {
            named_folders(document, &mut folders);
        }
        folders.sort();
        folders.dedup();
        let admin_port = bootstrap["admin"]["address"]["socket_address"]["port_value"].as_u64().unwrap_or_default();
        Self { settings: proxy.settings, name: &proxy.node.raw_id, ipv6: proxy.is_ipv6(), admin_port, file, folders }
    }

    /// The arguments that the settings stand for.
    pub fn arguments(&self) -> Vec<String> {
        let settings = self.settings;
        let millis = |d: &wkt::Duration| d.seconds.saturating_mul(1000) + i64::from(d.nanos / 1_000_000);
        let drain = settings.drain_duration.as_ref().map_or(45, |d| d.seconds);
        let flush = settings.file_flush_interval.as_ref().map_or(FLUSH_MILLISECONDS, millis);
        let mut all = vec![
            ("--drain-time-s", drain.to_string()),
            ("--drain-strategy", "immediate".to_string()),
            ("--local-address-ip-version", if self.ipv6 { "v6" } else { "v4" }.to_string()),
            ("--file-flush-interval-msec", flush.to_string()),
        ];
        if settings.file_flush_min_size_kb > 0 {
            all.push(("--file-flush-min-size-kb", settings.file_flush_min_size_kb.to_string()));
        }
        // 0 is all cores, which is Envoy's default.
        if let Some(threads) = settings.concurrency.filter(|threads| *threads > 0) {
            all.push(("--concurrency", threads.to_string()));
        }
        let pairs = all.into_iter().flat_map(|(name, value)| [name.to_string(), value]);
        pairs.chain(["--disable-hot-restart".to_string()]).collect()
    }

    fn command(&self) -> Vec<String> {
        let file = ["-c".to_string(), self.file.display().to_string()];
        file.into_iter().chain(self.arguments()).collect()
    }

    /// Environment variables of the process: those of the settings that are no metadata.
    fn environment(&self) -> impl Iterator<Item = (&String, &String)> {
        self.settings.proxy_metadata.iter().filter(|(key, _)| !key.starts_with(METADATA_PREFIX))
    }

    /// Seconds in which connections end after a stop.
    fn last_seconds(&self) -> i64 {
        self.settings.termination_drain_duration.as_ref().map_or(5, |d| d.seconds.clamp(0, 3600))
    }

    /// The systemd unit.
    #[must_use]
    pub fn unit(&self) -> String {
        let binary = match self.settings.binary_path.as_str() {
            "" => "/usr/local/bin/envoy",
            path => path,
        };
        let mut text = format!("[Unit]\nDescription=Envoy of {}\n", unit_text(self.name));
        text.push_str("Wants=network-online.target\nAfter=network-online.target\n\n[Service]\n");
        for (key, value) in self.environment() {
            let _ = writeln!(text, "Environment={}", unit_word(&format!("{key}={value}")));
        }
        let words: Vec<String> =
            [binary.to_string()].into_iter().chain(self.command()).map(|word| command_word(&word)).collect();
        let _ = writeln!(text, "ExecStart={}", words.join(" "));
        let host = if self.ipv6 { "[::1]" } else { "127.0.0.1" };
        let (port, seconds) = (self.admin_port, self.last_seconds());
        let drain = format!(
            "curl -s -m 2 -X POST 'http://{host}:{port}/drain_listeners?graceful&skip_exit' >/dev/null; sleep {seconds}"
        );
        let _ = writeln!(text, "ExecStop=-/bin/sh -c {}", command_word(&drain));
        let _ = writeln!(text, "TimeoutStopSec={}", seconds + 10);
        text.push_str("Restart=always\nRestartSec=1\nLimitNOFILE=1048576\nNoNewPrivileges=true\n\n");
        text.push_str("[Install]\nWantedBy=multi-user.target\n");
        text
    }

    /// The compose file. The container has the network of the machine, whose addresses the node names.
    #[must_use]
    pub fn compose(&self) -> String {
        let quoted = |text: &str| Value::from(text.replace('$', "$$")).to_string();
        let variant = self.settings.image.as_ref().map_or("", |image| image.image_type.as_str());
        let version = if variant == "distroless" { format!("distroless-{VERSION}") } else { VERSION.to_string() };
        let mut text = format!("# Envoy of {}\nservices:\n  envoy:\n", self.name.replace(char::is_control, " "));
        let _ = writeln!(text, "    image: {}", quoted(&format!("{IMAGE}:{version}")));
        text.push_str("    network_mode: host\n    user: \"0:0\"\n    restart: unless-stopped\n");
        let _ = writeln!(text, "    stop_grace_period: {}s", self.last_seconds() + 10);
        text.push_str("    entrypoint: [\"/usr/local/bin/envoy\"]\n    command:\n");
        for word in self.command() {
            let _ = writeln!(text, "      - {}", quoted(&word));
        }
        let mut environment = self.environment().peekable();
        if environment.peek().is_some() {
            text.push_str("    environment:\n");
            for (key, value) in environment {
                let _ = writeln!(text, "      {}: {}", quoted(key), quoted(value));
            }
        }
        text.push_str("    volumes:\n");
        for folder in &self.folders {
            let path = folder.display().to_string();
            let _ = writeln!(text, "      - {}", quoted(&format!("{path}:{path}:ro")));
        }
        text
    }
}

/// Folders of the files and sockets that a document names.
fn named_folders(document: &Value, folders: &mut Vec<PathBuf>) {
    match document {
        Value::Object(fields) => {
            for (key, value) in fields {
                let named = match key.as_str() {
                    "pipe" | "path_config_source" => &value["path"],
                    key if key == "filename" || key.starts_with("TLS_") => value,
                    _ => {
                        named_folders(value, folders);
                        continue;
                    }
                };
                let path = named.as_str().map(Path::new).filter(|path| path.is_absolute());
                folders.extend(path.and_then(Path::parent).map(Path::to_path_buf));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| named_folders(item, folders)),
        _ => {}
    }
}

/// A word of a unit's command.
fn command_word(text: &str) -> String {
    unit_word(&text.replace('$', "$$"))
}

/// A word of a unit: quoted, and without the meaning of `%` and `\`.
fn unit_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_string();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '\\' | '"' => quoted.extend(['\\', c]),
            '%' => quoted.push_str("%%"),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() => {}
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// A text of a unit, on one line.
fn unit_text(text: &str) -> String {
    text.replace('%', "%%").replace(char::is_control, " ")
}
