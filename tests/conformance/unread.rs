//! Families of kinds that are read without effect: EnvoyFilter and Telemetry. Their recordings are counted as not yet, for as
//! long as the kind says so itself.

use std::fs;

use pilothouse::model::Kind;

use crate::data::{self, Case, Verdict};

/// One case for each patch of an EnvoyFilter.
pub fn envoy_filters() -> Vec<Case> {
    data::cases("envoyfilter", "case.json")
}

/// One case for each file of a test.
pub fn telemetries() -> Vec<Case> {
    let mut cases = Vec::new();
    for folder in data::folders("telemetry") {
        for test in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
            for entry in fs::read_dir(&test).unwrap() {
                let file = entry.unwrap().path();
                let id = file.strip_prefix(&folder).unwrap().with_extension("");
                cases.push(Case {
                    id: format!("telemetry/{}", id.display()),
                    folder: test.clone(),
                    proxy: String::new(),
                });
            }
        }
    }
    cases.sort_by(|a, b| a.id.cmp(&b.id));
    cases
}

/// Not yet, while the kind is without effect.
pub fn check(kind: Kind) -> Verdict {
    let why =
        kind.without_effect().unwrap_or_else(|| panic!("{kind} has an effect: its recordings are to be compared"));
    Verdict::NotYet(why.to_string())
}
