//! The results in the form of Gateway API's ConformanceReport. It is a run of our own of recorded demands, and says so: not
//! a report of the suite itself.

use std::{collections::BTreeMap, fs};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{list, requests, text};
use crate::data::Verdict;

const NOTE: &str = "\
# A run of pilothouse's own, in the form of a ConformanceReport. It was not made by Gateway API's conformance suite: the
# demands of that suite's tests, as recorded, were asked of pilothouse's translation (statuses) and of real Envoys that
# pilothouse had configured (requests). Make it again with
#   cargo test --test conformance gateway_apis_own_tests_get
";

/// Profiles: name, the route kind that is its own, and whether it is of a mesh.
const PROFILES: [(&str, &str, bool); 7] = [
    ("GATEWAY-HTTP", "HTTPRoute", false),
    ("GATEWAY-GRPC", "GRPCRoute", false),
    ("GATEWAY-TLS", "TLSRoute", false),
    ("GATEWAY-TCP", "TCPRoute", false),
    ("GATEWAY-UDP", "UDPRoute", false),
    ("MESH-HTTP", "HTTPRoute", true),
    ("MESH-GRPC", "GRPCRoute", true),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Passed,
    Failed,
    Skipped,
}

struct Played {
    name: String,
    features: Vec<String>,
    complete: bool,
    outcome: Outcome,
}

/// Results of all tests.
#[derive(Default)]
pub struct Results {
    played: Vec<Played>,
    /// Counts of passed, failed and nothing asked: of statuses, of requests.
    counts: [[usize; 3]; 2],
}

fn outcome(verdict: &Verdict) -> Outcome {
    match verdict {
        Verdict::Passed => Outcome::Passed,
        Verdict::Failed(_) => Outcome::Failed,
        Verdict::NotYet(_) => Outcome::Skipped,
    }
}

impl Results {
    /// Takes the results of a test in: of its demands on statuses, and of its requests.
    pub fn add(&mut self, test: &Value, statuses: &Verdict, requests: &Verdict) {
        let parts = [outcome(statuses), outcome(requests)];
        for (counts, part) in self.counts.iter_mut().zip(parts) {
            counts[part as usize] += 1;
        }
        let outcome = match parts {
            [Outcome::Failed, _] | [_, Outcome::Failed] => Outcome::Failed,
            [Outcome::Skipped, Outcome::Skipped] => Outcome::Skipped,
            _ => Outcome::Passed,
        };
        self.played.push(Played {
            name: text(&test["shortName"]).to_string(),
            features: list(&test["features"]).map(|f| text(f).to_string()).collect(),
            complete: test["complete"] != false,
            outcome,
        });
    }

    /// Writes the report; after a part of the tests it is not the report.
    pub fn write(&self, partial: bool) {
        let [statuses, requests] =
            self.counts.map(|[p, f, n]| format!("{p} passed, {f} failed, {n} without such a demand"));
        println!("conformance report: statuses: {statuses}; requests: {requests}");
        if partial || self.played.is_empty() {
            return;
        }
        let incomplete: Vec<&str> = self.played.iter().filter(|p| !p.complete).map(|p| &*p.name).collect();
        let header = format!(
            "{NOTE}#\n# Statuses: {statuses}.\n# Requests: {requests}.\n# Tests whose recorded demands stop early:\n#   {}\n",
            incomplete.join(" ")
        );
        let path = requests::target().join("gateway-api-conformance-report.yaml");
        fs::write(&path, header + &serde_saphyr::to_string(&self.document()).unwrap()).unwrap();
        println!("conformance report: {}", path.display());
    }

    fn document(&self) -> Value {
        let profiles: Vec<Value> = PROFILES.iter().filter_map(|profile| self.profile(*profile)).collect();
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "ConformanceReport",
            "date": Timestamp::now().to_string(),
            "gatewayAPIChannel": "experimental",
            "gatewayAPIVersion": "as recorded",
            "implementation": {"organization": "pilothouse", "project": "pilothouse", "url": "", "contact": [],
                "version": env!("CARGO_PKG_VERSION")},
            "mode": "own run of recorded demands",
            "profiles": profiles,
        })
    }

    fn profile(&self, (name, kind, of_mesh): (&str, &str, bool)) -> Option<Value> {
        let base = if of_mesh { "Mesh" } else { "Gateway" };
        let core = |p: &Played| p.features.iter().all(|f| f == kind || f == base || f == "ReferenceGrant");
        let of_profile: Vec<&Played> = self.played.iter().filter(|p| p.belongs(kind, of_mesh)).collect();
        if of_profile.is_empty() {
            return None;
        }
        let (core, extended): (Vec<&Played>, Vec<&Played>) = of_profile.iter().partition(|p| core(p));
        let own = |f: &&String| *f != kind && *f != base && *f != "ReferenceGrant";
        let mut features: BTreeMap<&str, bool> = BTreeMap::new();
        for played in &extended {
            for feature in played.features.iter().filter(own) {
                *features.entry(feature).or_insert(true) &= played.outcome != Outcome::Failed;
            }
        }
        let supporting = |wanted: bool| -> Vec<&str> {
            features.iter().filter(|(_, supported)| **supported == wanted).map(|(f, _)| *f).collect()
        };
        let mut more = section(&extended);
        more["supportedFeatures"] = json!(supporting(true));
        more["unsupportedFeatures"] = json!(supporting(false));
        let failed = |part: &[&Played]| part.iter().filter(|p| p.outcome == Outcome::Failed).count();
        let summary = match (failed(&core), failed(&extended)) {
            (0, 0) => "Core tests succeeded. Extended tests succeeded.".to_string(),
            (c, e) => format!("Core tests failed: {c}. Extended tests failed: {e}."),
        };
        Some(json!({"name": name, "core": section(&core), "extended": more, "summary": summary}))
    }
}

impl Played {
    /// Whether the test belongs to a route kind; a test of no other kind is of HTTP.
    fn belongs(&self, kind: &str, of_mesh: bool) -> bool {
        let has = |feature: &str| self.features.iter().any(|f| f == feature);
        let other = ["GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"].into_iter().find(|k| has(k));
        has("Mesh") == of_mesh && other.unwrap_or("HTTPRoute") == kind
    }
}

fn section(part: &[&Played]) -> Value {
    let names =
        |outcome: Outcome| -> Vec<&str> { part.iter().filter(|p| p.outcome == outcome).map(|p| &*p.name).collect() };
    let (passed, failed, skipped) = (names(Outcome::Passed), names(Outcome::Failed), names(Outcome::Skipped));
    let result = match (failed.len(), skipped.len()) {
        (0, 0) => "success",
        (0, _) => "partial",
        _ => "failure",
    };
    let mut section = json!({"result": result,
        "statistics": {"Passed": passed.len(), "Failed": failed.len(), "Skipped": skipped.len()}});
    for (key, names) in [("failedTests", failed), ("skippedTests", skipped)] {
        if !names.is_empty() {
            section[key] = json!(names);
        }
    }
    section
}
