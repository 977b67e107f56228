//! `pilothouse proxy-status`: the connected proxies of a running server.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::{http::ServerArgs, table};

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
    /// The server.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Form of the answer.
    #[arg(short, long, env = "PILOTHOUSE_OUTPUT", value_enum, default_value_t)]
    pub output: Output,
}

/// Prints the table.
///
/// # Errors
/// A server that does not answer.
pub fn run(args: ProxyStatusArgs) -> anyhow::Result<ExitCode> {
    let proxies = args.server.fetch("/debug/syncz")?;
    match args.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&proxies)?),
        Output::Table => print!("{}", shown(&proxies)),
    }
    Ok(ExitCode::SUCCESS)
}

/// The columns of `istioctl proxy-status`; a type is SYNCED, STALE or NOT SENT.
fn shown(proxies: &Value) -> String {
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
    table::aligned(&rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_type_is_synced_when_what_was_sent_is_what_was_acknowledged() {
        let text = shown(&json!([{
            "proxy": "web.shop", "cluster_id": "Kubernetes", "proxy_type": "sidecar", "istio_version": "",
            "cluster_sent": "a", "cluster_acked": "a", "listener_sent": "b", "listener_acked": "a",
        }]));
        let row: Vec<&str> =
            text.lines().nth(1).unwrap_or_default().split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
        assert_eq!(row, ["web.shop", "Kubernetes", "sidecar", "SYNCED", "STALE", "NOT SENT", "NOT SENT"]);
    }
}
