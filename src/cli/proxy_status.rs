//! `pilothouse proxy-status`: the connected proxies of a running server, and the difference between the configuration that one
//! was sent and the one that it holds.

mod difference;

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use serde_json::Value;

use super::{
    Refusal,
    dump::{self, Dump},
    http::{self, ServerArgs},
    output::Output,
    table,
};

/// Arguments of `proxy-status`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLE)]
pub struct ProxyStatusArgs {
    /// The proxy to show; all without one.
    #[arg(value_name = "NAME[.NAMESPACE]")]
    pub proxy: Option<String>,
    /// An Envoy's admin address: show the difference between the configuration that it was sent and the one that it holds.
    /// NAME is needed only where the Envoy does not know its own.
    #[arg(long, env = "PILOTHOUSE_ENVOY_ADMIN", value_name = "HOST:PORT", value_parser = http::address, conflicts_with = "file")]
    pub envoy_admin: Option<String>,
    /// The same with a file of the Envoy's /config_dump; `-` is standard input.
    #[arg(short, long, env = "PILOTHOUSE_FILE", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The server.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Form of the answer.
    #[arg(short, long, env = "PILOTHOUSE_OUTPUT", value_enum, default_value_t)]
    pub output: Output,
}

const EXAMPLE: &str = "Examples:
  pilothouse proxy-status
  pilothouse proxy-status web.shop --envoy-admin 127.0.0.1:15000";

/// Prints the table, or the difference.
///
/// # Errors
/// A server or an Envoy that does not answer, a proxy that is not connected, a file that is no config dump.
pub fn run(args: ProxyStatusArgs) -> anyhow::Result<ExitCode> {
    let held = match (&args.envoy_admin, &args.file) {
        (Some(address), _) => Some(dump::of_admin(address)?),
        (_, Some(file)) => Some(dump::of_file(file)?),
        _ => None,
    };
    if let Some(held) = held {
        let held = Dump::of(held)?;
        let named = args.proxy.clone().or_else(|| id_of(&held));
        let named = named.ok_or_else(|| Refusal("NAME: the dump does not name the proxy; name it here".to_string()))?;
        let sent = Dump::of(dump::of_server(&args.server, &named)?)?;
        let found = difference::between(&sent, &held);
        args.output.write(&difference::value(&found), |_| difference::text(&found))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut proxies = args.server.fetch("/debug/syncz")?;
    if let (Some(name), Value::Array(list)) = (&args.proxy, &mut proxies) {
        list.retain(|proxy| dump::is_named(proxy, name));
        if list.is_empty() {
            return Err(dump::not_connected(name).into());
        }
    }
    args.output.write(&proxies, shown)?;
    Ok(ExitCode::SUCCESS)
}

/// The node's id of a bootstrap.
fn id_of(held: &Dump) -> Option<String> {
    held.bootstrap()?["node"]["id"].as_str().map(String::from)
}

/// The columns of `istioctl proxy-status`, then the address and the number of each connection: a gRPC client has one for
/// each target. A type is SYNCED, STALE, NOT SENT, or ERROR where the proxy refused the last response; the reasons follow
/// the table.
fn shown(proxies: &Value) -> String {
    const TYPES: [(&str, &str); 4] = [("cluster", "cds"), ("listener", "lds"), ("endpoint", "eds"), ("route", "rds")];
    let titles = ["NAME", "CLUSTER", "TYPE", "CDS", "LDS", "EDS", "RDS", "VERSION", "ADDRESS", "CONNECTION"];
    let mut rows = vec![titles.map(String::from)];
    let mut refused = String::new();
    for proxy in proxies.as_array().into_iter().flatten() {
        let text = |key: &str| proxy[key].as_str().unwrap_or_default().to_string();
        let state = |(kind, short): (&str, &str)| match (text(&format!("{kind}_sent")), text(&format!("{kind}_acked")))
        {
            _ if !reason(proxy, short).is_empty() => "ERROR".to_string(),
            (sent, _) if sent.is_empty() => "NOT SENT".to_string(),
            (sent, acked) if sent == acked => "SYNCED".to_string(),
            _ => "STALE".to_string(),
        };
        let [cds, lds, eds, rds] = TYPES.map(state);
        let connection = text("connection_id");
        let number = connection.rsplit('-').next().unwrap_or_default().to_string();
        let version = text("istio_version");
        let [name, cluster, kind, address] = ["proxy", "cluster_id", "proxy_type", "address"].map(text);
        rows.push([name, cluster, kind, cds, lds, eds, rds, version, address, number]);
        for kind in proxy["resources"].as_object().into_iter().flatten().map(|(kind, _)| kind) {
            let why = reason(proxy, kind);
            if !why.is_empty() {
                let kind = kind.to_uppercase();
                refused += &format!("\n{connection} refused {kind}: {}\n", why.escape_debug());
            }
            let missing = proxy["resources"][kind]["missing"].as_array().into_iter().flatten();
            let missing: Vec<String> =
                missing.filter_map(Value::as_str).map(|n| n.escape_debug().to_string()).collect();
            if !missing.is_empty() {
                let kind = kind.to_uppercase();
                refused += &format!("\n{connection} asks for {kind} that do not exist: {}\n", missing.join(", "));
            }
        }
    }
    table::aligned(&rows) + &refused
}

fn reason<'a>(proxy: &'a Value, kind: &str) -> &'a str {
    proxy["resources"][kind]["lastError"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_type_is_synced_when_the_sent_version_is_acknowledged() {
        let text = shown(&json!([{
            "proxy": "web.shop", "cluster_id": "Kubernetes", "proxy_type": "sidecar", "istio_version": "",
            "connection_id": "web.shop-17", "address": "10.0.0.1:4711",
            "cluster_sent": "a", "cluster_acked": "a", "listener_sent": "b", "listener_acked": "a",
            "route_sent": "c", "route_acked": "b", "resources": {"cds": {"missing": ["nowhere"]}, "rds": {"lastError": "no\nsuch filter"}},
        }]));
        let row: Vec<&str> =
            text.lines().nth(1).unwrap_or_default().split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
        let states = ["SYNCED", "STALE", "NOT SENT", "ERROR"];
        assert_eq!(row, [&["web.shop", "Kubernetes", "sidecar"], &states[..], &["10.0.0.1:4711", "17"]].concat());
        assert!(text.contains("web.shop-17 asks for CDS that do not exist: nowhere"), "{text}");
        assert_eq!(text.lines().last(), Some("web.shop-17 refused RDS: no\\nsuch filter"));
    }
}
