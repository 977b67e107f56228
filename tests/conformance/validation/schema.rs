//! Family `validation-schema`: one object in; whether a Kubernetes API server with Istio's definitions accepts it. The objects
//! are those of the family `validation`, and those that Istio tests its definitions with. And the schemas themselves, node by
//! node against the definitions.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use pilothouse::{
    model::{
        Kind,
        kind::KindClass,
        validation::{api_server_refusals, outline},
    },
    sources::yaml,
};
use serde_json::{Map, Value, json};

use crate::{
    data::{self, Case, Verdict},
    skipped::skipped,
};

/// The key of a document under which the expected error stands.
const EXPECTED: &str = "_err";

/// A document, and the error that is expected.
type Recorded = (Value, Option<String>);

fn recorded() -> &'static BTreeMap<String, Recorded> {
    static RECORDED: OnceLock<BTreeMap<String, Recorded>> = OnceLock::new();
    RECORDED.get_or_init(|| {
        let objects = super::recorded().iter().map(|(id, case)| {
            let mut document = case["document"].clone();
            if document["spec"].is_null() {
                document.as_object_mut().unwrap().shift_remove("spec");
            }
            let id = id.replacen("validation/", "validation-schema/", 1);
            (id, (document, case["crdError"].as_str().map(String::from)))
        });
        objects.chain(of_definitions()).collect()
    })
}

/// The documents of Istio's tests of its definitions.
fn of_definitions() -> Vec<(String, Recorded)> {
    let folders = data::folders("validation").into_iter().map(|f| f.join("crds")).filter(|f| f.is_dir());
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap()).map(|f| f.unwrap().path());
    files.flat_map(|path| documents(&path)).collect()
}

fn documents(path: &Path) -> Vec<(String, Recorded)> {
    let file = path.file_stem().unwrap().to_string_lossy().into_owned();
    // Read as `kubectl` reads them, which takes an address such as `2001:db8::` in a list for a text.
    let text = fs::read_to_string(path).unwrap();
    let documents = yaml::documents(&text).into_iter().flat_map(|chunk| yaml::values(chunk.text).unwrap());
    documents
        .filter(|document| !document.is_null())
        .enumerate()
        .map(|(i, mut document)| {
            let expected = document.as_object_mut().and_then(|map| map.shift_remove(EXPECTED));
            let name = document["metadata"]["name"].as_str().unwrap_or_default().to_string();
            let expected = expected.and_then(|e| e.as_str().map(String::from));
            (format!("validation-schema/crds/{file}/{i:02}-{name}"), (document, expected))
        })
        .collect()
}

/// One object is one case.
pub fn cases() -> Vec<Case> {
    let case = |id: &String| Case { id: id.clone(), folder: PathBuf::new(), proxy: String::new() };
    recorded().keys().map(case).collect()
}

/// Acceptance is exact.
pub fn check(case: &Case) -> Verdict {
    let (document, expected) = &recorded()[&case.id];
    let text = |key: &str| document[key].as_str().unwrap_or_default();
    let Some(kind) = Kind::parse(text("apiVersion"), text("kind")) else {
        return Verdict::Failed(vec![format!("{} of {} is not known", text("kind"), text("apiVersion"))]);
    };
    let refusals = api_server_refusals(kind, document);
    if refusals.is_empty() == expected.is_none() {
        return Verdict::Passed;
    }
    Verdict::Failed(vec![format!("expected {expected:?}; got {refusals:?} for {document}")])
}

/// The schema of each kind has the nodes of its definition with their types, limits, alternatives and numbers of CEL rules.
pub fn compare_with_the_definitions() {
    let Some(folder) = data::root().map(|root| root.join("crds/istio")).filter(|f| f.is_dir()) else {
        return skipped("the definitions of Istio's kinds are not beside the repository");
    };
    let mut defined: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for definition in fs::read_dir(folder).unwrap().flat_map(|file| data::yaml(&file.unwrap().path())) {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default().to_string();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        visit("spec", schema, defined.entry(kind).or_default());
    }
    let (mut wrong, mut nodes, none) = (Vec::new(), 0, Vec::new());
    for kind in Kind::ALL.iter().filter(|kind| kind.class() == KindClass::Istio) {
        let (theirs, ours) = (defined.remove(kind.as_str()).unwrap_or_default(), outline(*kind));
        nodes += theirs.len();
        for path in theirs.keys().chain(ours.keys()).collect::<BTreeSet<_>>() {
            let (theirs, ours) = (theirs.get(path).unwrap_or(&none), ours.get(path).unwrap_or(&none));
            if theirs != ours {
                wrong.push(format!("{kind} {path}: defined {theirs:?}, ours {ours:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    assert!(nodes > 1000 && defined.is_empty(), "{nodes} nodes; not compared: {:?}", defined.keys());
    data::say(&format!("schemas of Istio's kinds: {nodes} nodes are as defined"));
}

/// The properties of a node of a definition, as `outline` says them.
fn visit(path: &str, schema: &Value, nodes: &mut BTreeMap<String, Vec<String>>) {
    let mut said = Vec::new();
    let number = |name: &str| schema.get(name).and_then(Value::as_f64).map(|n| format!("{name}={n}"));
    let bounds =
        ["minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"];
    said.extend(bounds.iter().filter_map(|name| number(name)));
    let text = |name: &str| schema.get(name).and_then(Value::as_str);
    said.extend(text("type").map(|kind| format!("type={kind}")));
    said.extend(text("format").filter(|f| ["int32", "byte"].contains(f)).map(|format| format!("format={format}")));
    said.extend(text("pattern").map(|_| "pattern".to_string()));
    let sorted = |list: &Value| {
        let mut names: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        names.sort_unstable();
        names.join(",")
    };
    said.extend(schema.get("enum").map(|names| format!("enum={}", sorted(names))));
    said.extend(schema.get("required").map(|names| format!("required={}", sorted(names))));
    said.extend(schema.get("x-kubernetes-list-map-keys").map(|keys| format!("keys={}", sorted(keys))));
    for (name, word) in [("nullable", "nullable"), ("x-kubernetes-preserve-unknown-fields", "free")] {
        said.extend((schema.get(name) == Some(&json!(true))).then(|| word.to_string()));
    }
    let alone = [json!({"oneOf": schema.get("oneOf")})];
    for group in schema.get("allOf").and_then(Value::as_array).map_or(&alone[..], Vec::as_slice) {
        let names = group["oneOf"].as_array().into_iter().flatten().filter_map(|one| one["required"][0].as_str());
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        said.extend((!names.is_empty()).then(|| format!("oneOf={}", names.join(","))));
    }
    let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array).map_or(0, Vec::len);
    said.extend((rules > 0).then(|| format!("rules={rules}")));
    said.sort_unstable();
    nodes.insert(path.to_string(), said);
    for (name, field) in schema.get("properties").and_then(Value::as_object).unwrap_or(&Map::new()) {
        visit(&format!("{path}.{name}"), field, nodes);
    }
    for (name, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(of) = schema.get(name).filter(|of| of.is_object()) {
            visit(&format!("{path}{mark}"), of, nodes);
        }
    }
}
