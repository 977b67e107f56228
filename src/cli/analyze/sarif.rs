//! Findings as a SARIF 2.1.0 log.

use std::path::Path;

use serde_json::{Value, json};

use super::forms::Finding;
use crate::analysis::{Code, Level};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// The log: every rule that occurs, and a result for each finding.
pub(super) fn document(findings: &[Finding]) -> Value {
    let mut codes: Vec<Code> = findings.iter().map(|finding| finding.code).collect();
    codes.sort();
    codes.dedup();
    let rules: Vec<Value> = codes.iter().map(|code| rule(*code)).collect();
    let results: Vec<Value> = findings
        .iter()
        .map(|finding| result(finding, codes.binary_search(&finding.code).unwrap_or_default()))
        .collect();
    let driver = json!({"name": "pilothouse", "version": env!("CARGO_PKG_VERSION"), "rules": rules});
    json!({"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]})
}

fn rule(code: Code) -> Value {
    let mut rule = json!({
        "id": code.code(),
        "name": code.name(),
        "shortDescription": {"text": code.meaning()},
        "help": {"text": code.way_out()},
        "defaultConfiguration": {"level": level(code.level())},
    });
    if let Some(page) = code.documentation() {
        rule["helpUri"] = page.into();
    }
    rule
}

const fn level(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Info => "note",
    }
}

fn result(finding: &Finding, rule: usize) -> Value {
    let mut place = json!({"artifactLocation": {"uri": uri(&finding.file)}});
    if finding.line > 0 {
        place["region"] = json!({"startLine": finding.line});
        if finding.column > 0 {
            place["region"]["startColumn"] = finding.column.into();
        }
    }
    // An object of a cluster has a name, and no file.
    let mut location = if finding.file.is_empty() { json!({}) } else { json!({"physicalLocation": place}) };
    if !finding.origin.is_empty() {
        location["logicalLocations"] = json!([{"fullyQualifiedName": finding.origin}]);
    }
    json!({
        "ruleId": finding.code.code(),
        "ruleIndex": rule,
        "level": level(finding.level()),
        "message": {"text": finding.text},
        "locations": [location],
    })
}

/// A path as a URI: relative, or of the scheme `file`.
fn uri(path: &str) -> String {
    let mut uri = if Path::new(path).is_absolute() { "file://".to_string() } else { String::new() };
    for byte in path.strip_prefix("./").unwrap_or(path).bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(char::from(byte)),
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_name_their_rule_and_place() {
        let one = |code, file: &str, line| {
            Finding::of_file(code, file.to_string(), (line, 2), "Pod", "a/b".to_string(), "text".to_string())
        };
        let log = document(&[one(Code::SubsetUnused, "./a b.yaml", 4), one(Code::Deprecated, "/x.yaml", 0)]);
        let run = &log["runs"][0];
        let rule =
            |i: usize| &run["tool"]["driver"]["rules"][run["results"][i]["ruleIndex"].as_u64().unwrap() as usize];
        assert_eq!((&rule(0)["id"], &rule(1)["id"]), (&json!("PH0105"), &json!("IST0002")));
        let place = &run["results"][0]["locations"][0]["physicalLocation"];
        assert_eq!(
            place,
            &json!({"artifactLocation": {"uri": "a%20b.yaml"}, "region": {"startLine": 4, "startColumn": 2}})
        );
        let place = &run["results"][1]["locations"][0]["physicalLocation"];
        assert_eq!(place, &json!({"artifactLocation": {"uri": "file:///x.yaml"}}));
        assert_eq!((&run["results"][0]["level"], &run["results"][1]["level"]), (&json!("note"), &json!("warning")));
    }
}
