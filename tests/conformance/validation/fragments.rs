//! Family `validation-fragments`: the arguments of one of Istio's validators of parts of objects; whether they are valid, and
//! whether there is a warning. Parts of the mesh config are among them.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::OnceLock};

use pilothouse::model::validation::fragments::verdict;
use serde_json::Value;

use crate::data::{self, Case, Verdict};

/// Validators of Istio that have no counterpart, each with the reason.
const WITHOUT: &[(&str, &str)] =
    &[("ValidateMaxServerConnectionAge", "the type of --keepalive-max-server-connection-age has no negative values")];

fn recorded() -> &'static BTreeMap<String, Value> {
    static RECORDED: OnceLock<BTreeMap<String, Value>> = OnceLock::new();
    RECORDED.get_or_init(|| {
        let folders = data::folders("validation").into_iter().flat_map(|f| [f.join("fragments"), f.join("scalars")]);
        let files = folders.filter(|f| f.is_dir()).flat_map(|folder| fs::read_dir(folder).unwrap());
        let files = files.map(|f| f.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "yaml"));
        files.flat_map(|path| data::yaml(&path)).flat_map(calls).collect()
    })
}

fn calls(file: Value) -> Vec<(String, Value)> {
    let function = file["function"].as_str().unwrap();
    let cases = file["cases"].as_array().cloned().unwrap_or_default();
    let calls = cases.into_iter().enumerate().map(|(i, mut case)| {
        let test = case["test"].as_str().unwrap_or_default().replace(char::is_whitespace, "_");
        let id = format!("validation-fragments/{function}/{i:03}-{test}");
        case["function"] = function.into();
        (id, case)
    });
    calls.filter(|_| !WITHOUT.iter().any(|(without, _)| *without == function)).collect()
}

/// One call is one case.
pub fn cases() -> Vec<Case> {
    let case = |id: &String| Case { id: id.clone(), folder: PathBuf::new(), proxy: String::new() };
    recorded().keys().map(case).collect()
}

/// Validity and the presence of a warning are exact. Arguments that cannot be read are invalid. Warnings of recordings are those
/// of the mesh config alone, because Istio's other validators of parts return errors only.
pub fn check(case: &Case) -> Verdict {
    let wanted = &recorded()[&case.id];
    let function = wanted["function"].as_str().unwrap();
    let (valid, warned) = match verdict(function, &wanted["args"]) {
        None => return Verdict::Failed(vec![format!("{function} has no counterpart")]),
        Some(Err(reason)) => (Err(vec![reason]), false),
        Some(Ok(found)) if found.is_valid() => (Ok(()), !found.warnings.is_empty()),
        Some(Ok(found)) => (Err(found.errors), !found.warnings.is_empty()),
    };
    let with_warnings = function.starts_with("ValidateMeshConfig") && wanted["warning"].is_string();
    if valid.is_ok() == (wanted["valid"] == true) && (!with_warnings || warned) {
        return Verdict::Passed;
    }
    Verdict::Failed(vec![format!(
        "valid {}, error {}, warning {}; got {valid:?}, warned {warned}, for {}",
        wanted["valid"], wanted["error"], wanted["warning"], wanted["args"]
    )])
}
