//! `pilothouse proxy-status`: the connected proxies of a running server.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::Value;

/// How long a running server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// An answer that is longer than this, in bytes, is not one of ours.
const LONGEST_ANSWER: u64 = 1 << 30;

/// Form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// One JSON document.
    Json,
}

/// Arguments of `proxy-status`.
#[derive(Debug, Clone, Args)]
pub struct ProxyStatusArgs {
    /// Address of the server's admin pages.
    #[arg(
        long,
        alias = "httpAddr",
        env = "PILOTHOUSE_HTTP_ADDR",
        default_value = "127.0.0.1:8080",
        value_name = "HOST:PORT"
    )]
    pub http_addr: String,
    /// Form of the answer.
    #[arg(short, long, env = "PILOTHOUSE_OUTPUT", value_enum, default_value_t)]
    pub output: Output,
}

/// Prints the table.
///
/// # Errors
/// A server that does not answer.
pub fn run(args: ProxyStatusArgs) -> anyhow::Result<ExitCode> {
    let proxies = fetch(&args.http_addr, "/debug/syncz")
        .with_context(|| format!("asking http://{}/debug/syncz", args.http_addr))?;
    match args.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&proxies)?),
        Output::Table => print!("{}", table(&proxies)),
    }
    Ok(ExitCode::SUCCESS)
}

/// One plain GET; the answer is read to its end.
fn fetch(address: &str, path: &str) -> anyhow::Result<Value> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: application/json\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut answer)?;
    let split = answer.windows(4).position(|w| w == b"\r\n\r\n").context("the answer has no body")?;
    let head = String::from_utf8_lossy(&answer[..split]);
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    anyhow::ensure!(status == "200", "the server answered {status}");
    serde_json::from_slice(&answer[split + 4..]).context("the answer is not JSON")
}

/// The columns of `istioctl proxy-status`; a type is SYNCED, STALE or NOT SENT.
fn table(proxies: &Value) -> String {
    const TYPES: [&str; 4] = ["cluster", "listener", "endpoint", "route"];
    let mut rows = vec![["NAME", "CLUSTER", "TYPE", "CDS", "LDS", "EDS", "RDS", "VERSION"].map(String::from)];
    for proxy in proxies.as_array().into_iter().flatten() {
        let text = |key: &str| proxy[key].as_str().unwrap_or_default().to_string();
        let state = |kind: &str| match (text(&format!("{kind}_sent")), text(&format!("{kind}_acked"))) {
            (sent, _) if sent.is_empty() => "NOT SENT".to_string(),
            (sent, acked) if sent == acked => "SYNCED".to_string(),
            _ => "STALE".to_string(),
        };
        let [cds, lds, eds, rds] = TYPES.map(state);
        rows.push([text("proxy"), text("cluster_id"), text("proxy_type"), cds, lds, eds, rds, text("istio_version")]);
    }
    let width = |column: usize| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    rows.iter()
        .map(|row| {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, w)| format!("{cell:<w$}")).collect();
            cells.join("  ").trim_end().to_string() + "\n"
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_type_is_synced_when_what_was_sent_is_what_was_acknowledged() {
        let text = table(&json!([{
            "proxy": "web.shop", "cluster_id": "Kubernetes", "proxy_type": "sidecar", "istio_version": "",
            "cluster_sent": "a", "cluster_acked": "a", "listener_sent": "b", "listener_acked": "a",
        }]));
        let row: Vec<&str> =
            text.lines().nth(1).unwrap_or_default().split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
        assert_eq!(row, ["web.shop", "Kubernetes", "sidecar", "SYNCED", "STALE", "NOT SENT", "NOT SENT"]);
    }
}
