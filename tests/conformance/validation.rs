//! Family `validation`: one object in; whether it is valid, and whether there is a warning.

pub mod fragments;
pub mod schema;

use std::{collections::BTreeMap, fs, path::PathBuf, sync::OnceLock};

use pilothouse::model::{
    Origin, decode,
    validation::{Validation, validate},
};
use serde_json::{Value, json};

use crate::data::{self, Case, Verdict};

/// The warning for every EnvoyFilter; recordings of Istio's inner validator lack it.
const GENERAL: &str = "EnvoyFilter reaches into details";

/// The recorded objects by id, with `kind` and `apiVersion` of their file.
fn recorded() -> &'static BTreeMap<String, Value> {
    static RECORDED: OnceLock<BTreeMap<String, Value>> = OnceLock::new();
    RECORDED.get_or_init(|| {
        let files = data::folders("validation").into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
        let files = files.map(|f| f.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "yaml"));
        files.flat_map(|path| data::yaml(&path)).flat_map(objects).collect()
    })
}

fn objects(file: Value) -> Vec<(String, Value)> {
    let cases = file["cases"].as_array().cloned().unwrap_or_default();
    cases
        .into_iter()
        .enumerate()
        .map(|(i, mut case)| {
            let id = format!(
                "validation/{}/{i:03}-{}",
                file["kind"].as_str().unwrap(),
                case["test"].as_str().unwrap_or_default().replace(char::is_whitespace, "_")
            );
            case["document"] = json!({
                "apiVersion": file["apiVersion"], "kind": file["kind"], "metadata": case["metadata"], "spec": case["spec"]
            });
            (id, case)
        })
        .collect()
}

/// One object is one case.
pub fn cases() -> Vec<Case> {
    let case = |id: &String| Case { id: id.clone(), folder: PathBuf::new(), proxy: String::new() };
    recorded().keys().map(case).collect()
}

/// Validity and the presence of a warning are exact. What cannot be decoded is invalid.
pub fn check(case: &Case) -> Verdict {
    let Some(wanted) = recorded().get(&case.id) else {
        return Verdict::Failed(vec!["the case is gone".to_string()]);
    };
    let mut got = match decode::from_value(&wanted["document"], Origin::default()) {
        Ok(config) => validate(&config),
        Err(error) => Validation { errors: vec![error.to_string()], warnings: Vec::new() },
    };
    if wanted["test"].as_str().is_some_and(|test| test.starts_with("TestValidateEnvoyFilter")) {
        got.warnings.retain(|w| !w.contains(GENERAL));
    }
    let valid = wanted["valid"] == true;
    let warned = wanted["warning"].is_string();
    if got.is_valid() == valid && got.warnings.is_empty() != warned {
        return Verdict::Passed;
    }
    Verdict::Failed(vec![format!(
        "valid {valid}, error {}, warning {}; got {got:?} for {}",
        wanted["error"], wanted["warning"], wanted["document"]
    )])
}
