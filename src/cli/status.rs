//! `pilothouse status`: the status of each object of a running server.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::{http::ServerArgs, output::Output, table};
use crate::model::Kind;

/// Arguments of `status`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLE)]
pub struct StatusArgs {
    /// The server.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Form of the answer.
    #[arg(short, long, env = "PILOTHOUSE_OUTPUT", value_enum, default_value_t)]
    pub output: Output,
}

const EXAMPLE: &str = "Examples:
  pilothouse status
  pilothouse status -o json";

/// Prints the statuses, and the objects that were refused.
///
/// # Errors
/// A server that does not answer.
pub fn run(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let statuses = args.server.fetch("/debug/statusz")?;
    let [sources, analysis] = match args.output {
        Output::Table => [args.server.fetch("/debug/sourcez")?, args.server.fetch("/debug/analysisz")?],
        _ => [Value::Null, Value::Null],
    };
    args.output.write(&statuses, |statuses| shown(statuses, &sources, &analysis))?;
    Ok(ExitCode::SUCCESS)
}

/// One line for each part of a status that has conditions or addresses of its own.
fn shown(statuses: &Value, sources: &Value, analysis: &Value) -> String {
    let mut rows = vec![["KIND", "NAMESPACE", "NAME", "OF", "STATUS", "MESSAGE"].map(String::from)];
    for object in list(statuses) {
        let mut parts = parts(&object["status"]);
        let reports = list(&object["reports"]).iter().filter_map(Value::as_str);
        parts.extend(reports.map(|message| ("report".to_string(), String::new(), message.to_string())));
        if parts.is_empty() {
            parts.push(Default::default());
        }
        for (of, state, message) in parts {
            rows.push([kind(object), text(object, "namespace"), text(object, "name"), of, state, message]);
        }
    }
    for refused in list(sources).iter().flat_map(|source| list(&source["findings"]["refused"])) {
        let (file, line) = (text(refused, "file"), &refused["line"]);
        let message = format!("{file}:{line}: {}", text(refused, "reason"));
        let [kind, namespace, name] = ["kind", "namespace", "name"].map(|key| text(refused, key));
        rows.push([kind, namespace, name, String::new(), "refused".to_string(), message]);
    }
    rows.extend(list(analysis).iter().filter_map(finding));
    table::aligned(&rows)
}

/// A warning or an error of the analysis.
fn finding(message: &Value) -> Option<[String; 6]> {
    let (code, level, origin) = (text(message, "code"), text(message, "level"), text(message, "origin"));
    let (kind, full_name) = origin.split_once(' ')?;
    let (namespace, name) = full_name.split_once('/').unwrap_or(("", full_name));
    let told = format!("{}: {}", text(message, "path"), text(message, "message"));
    (level != "Info").then(|| [kind.to_string(), namespace.to_string(), name.to_string(), code, level, told])
}

/// The kind, with its group if that is the older one whose kinds share the names of Gateway API's.
fn kind(object: &Value) -> String {
    let (kind, api_version) = (text(object, "kind"), text(object, "apiVersion"));
    match api_version.split_once('/') {
        Some((group, _)) if group == Kind::ServiceApisGateway.group() => format!("{kind}.{group}"),
        _ => kind,
    }
}

/// For each line the part of the object, its conditions and addresses, and messages of failed conditions.
fn parts(status: &Value) -> Vec<(String, String, String)> {
    let mut parts = Vec::new();
    parts.extend(line(String::new(), status));
    for listener in list(&status["listeners"]) {
        parts.extend(line(format!("listener {}", text(listener, "name")), listener));
    }
    for (field, reference) in [("parents", "parentRef"), ("ancestors", "ancestorRef")] {
        for parent in list(&status[field]) {
            parts.extend(line(reference_name(&parent[reference]), parent));
        }
    }
    parts
}

fn line(of: String, part: &Value) -> Option<(String, String, String)> {
    let mut state: Vec<String> =
        list(&part["conditions"]).iter().map(|c| format!("{}={}", text(c, "type"), text(c, "status"))).collect();
    let addresses = list(&part["addresses"]).iter().chain(list(&part["loadBalancer"]["ingress"]));
    let shown = |a: &Value| ["value", "ip", "hostname"].iter().map(|k| text(a, k)).find(|t| !t.is_empty());
    state.extend(addresses.filter_map(shown));
    // The number of proxies that hold an object is of interest when all is well, too.
    let is_told = |c: &&Value| match text(c, "type").as_str() {
        "Conflicted" => text(c, "status") != "False",
        "Reconciled" => true,
        _ => text(c, "status") != "True",
    };
    let messages: Vec<String> = list(&part["conditions"])
        .iter()
        .filter(is_told)
        .map(|c| text(c, "message"))
        .filter(|m| !m.is_empty())
        .collect();
    (!state.is_empty()).then(|| (of, state.join(" "), messages.join("; ")))
}

fn reference_name(reference: &Value) -> String {
    let kind = text(reference, "kind");
    let kind = if kind.is_empty() { "Gateway".to_string() } else { kind };
    let section = text(reference, "sectionName");
    let section = if section.is_empty() { section } else { format!(" {section}") };
    format!("{kind} {}{section}", text(reference, "name"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(object: &Value, key: &str) -> String {
    object[key].as_str().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_part_of_a_status_has_a_line() {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "message": "because"});
        let text = shown(
            &json!([
                {"kind": "Gateway", "namespace": "edge", "name": "gw", "status": {
                    "addresses": [{"value": "10.0.0.1"}],
                    "conditions": [condition("Accepted", "True"), condition("Programmed", "False")],
                    "listeners": [{"name": "http", "conditions": [condition("Conflicted", "False")]}]}},
                {"kind": "HTTPRoute", "namespace": "shop", "name": "r", "status": {"parents": [
                    {"parentRef": {"name": "gw", "sectionName": "http"}, "conditions": [condition("Accepted", "True")]}]}},
                {"kind": "Ingress", "namespace": "shop", "name": "i", "status": {"loadBalancer": {}}},
                {"kind": "HTTPRoute", "apiVersion": "networking.x-k8s.io/v1alpha1", "namespace": "shop", "name": "odd",
                 "status": null, "reports": ["spec.rules: no list"]},
                {"kind": "VirtualService", "namespace": "shop", "name": "v", "status": {"conditions": [
                    {"type": "Reconciled", "status": "True", "message": "3/3 proxies up to date"}]}},
            ]),
            &json!([{"findings": {"refused": [
            {"file": "a.yaml", "line": 7, "kind": "Sidecar", "namespace": "shop", "name": "s", "reason": "no egress"}]}}]),
            &json!([
                {"code": "IST0118", "level": "Info", "origin": "Service shop/s", "path": "", "message": "no name"},
                {"code": "IST0101", "level": "Error", "origin": "VirtualService shop/v", "path": "spec.gateways[0]",
                 "message": "no such gateway"},
            ]),
        );
        let lines: Vec<Vec<&str>> =
            text.lines().map(|l| l.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect()).collect();
        assert_eq!(lines[1], ["Gateway", "edge", "gw", "Accepted=True Programmed=False 10.0.0.1", "because"]);
        assert_eq!(lines[2], ["Gateway", "edge", "gw", "listener http", "Conflicted=False"]);
        assert_eq!(lines[3], ["HTTPRoute", "shop", "r", "Gateway gw http", "Accepted=True"]);
        assert_eq!(lines[4], ["Ingress", "shop", "i"]);
        assert_eq!(lines[5], ["HTTPRoute.networking.x-k8s.io", "shop", "odd", "report", "spec.rules: no list"]);
        assert_eq!(lines[6], ["VirtualService", "shop", "v", "Reconciled=True", "3/3 proxies up to date"]);
        assert_eq!(lines[7], ["Sidecar", "shop", "s", "refused", "a.yaml:7: no egress"]);
        let finding = ["VirtualService", "shop", "v", "IST0101", "Error", "spec.gateways[0]: no such gateway"];
        assert_eq!(lines[8..], [finding]);
    }
}
