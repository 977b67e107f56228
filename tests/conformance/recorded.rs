//! The recorded xDS scenarios as the repository carries them: inputs as they are, and the resources of istiod in a
//! compact form.
//!
//! `recorded/xds/NAME/` holds `scenario.yaml`, `config.yaml` (`config.CLUSTER.yaml` of other clusters) and `expected.json`: for
//! each `PROXY/FILE` the recorded value. A part that occurs more than once stands once in `recorded/shared.jsonl`, a line each;
//! `{"$": 7}` is the value of line 7, from 0, and lines refer to earlier lines only. Nothing is left out but `push_status.json`,
//! which is no xDS.
//!
//! Where the recordings lie beside the repository, a test compares every value with them; `PILOTHOUSE_RECORDED=update` writes
//! the compact form anew.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use serde_json::{Map, Value, json};

use crate::{data, skipped::skipped};

/// The key of a reference.
const REFERENCE: &str = "$";
/// A shorter part is not worth a reference.
const SHORTEST: usize = 40;
/// Bytes of everything, inputs included.
const LARGEST: usize = 3 << 20;

/// The parts that occur more than once.
static SHARED: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let text = fs::read_to_string(folder().join("shared.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
});

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/recorded")
}

/// Where the scenarios are.
pub fn scenarios() -> PathBuf {
    folder().join("xds")
}

/// The recorded values of a scenario by `PROXY/FILE`, with references.
pub fn expected(scenario: &Path) -> Option<Map<String, Value>> {
    match data::json(&scenario.join("expected.json")) {
        Value::Object(map) => Some(map),
        _ => None,
    }
}

/// The value with its shared parts.
pub fn whole(value: &Value) -> Value {
    match value {
        Value::Object(map) => match map.get(REFERENCE).and_then(Value::as_u64) {
            Some(line) => whole(&SHARED[line as usize]),
            None => Value::Object(map.iter().map(|(k, v)| (k.clone(), whole(v))).collect()),
        },
        Value::Array(list) => list.iter().map(whole).collect(),
        other => other.clone(),
    }
}

/// Files of a recorded scenario, with their paths below it.
fn files(scenario: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let mut open = vec![scenario.to_path_buf()];
    while let Some(folder) = open.pop() {
        for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                open.push(path);
            } else if !path.ends_with("push_status.json") {
                let name = path.strip_prefix(scenario).unwrap().to_string_lossy().into_owned();
                found.push((name, path));
            }
        }
    }
    found.sort();
    found
}

/// The recorded scenarios by name: texts of the inputs, and values of `expected/`.
type Recorded = BTreeMap<String, (BTreeMap<String, String>, BTreeMap<String, Value>)>;

fn recorded(root: &Path) -> Recorded {
    let mut all = Recorded::new();
    for entry in fs::read_dir(root.join("xds")).unwrap() {
        let path = entry.unwrap().path();
        if !path.join("scenario.yaml").is_file() {
            continue;
        }
        let (mut inputs, mut outputs) = (BTreeMap::new(), BTreeMap::new());
        for (name, file) in files(&path) {
            match name.strip_prefix("expected/") {
                Some(name) => drop(outputs.insert(name.trim_end_matches(".json").to_string(), data::json(&file))),
                None => drop(inputs.insert(name, fs::read_to_string(&file).unwrap())),
            }
        }
        all.insert(path.file_name().unwrap().to_string_lossy().into_owned(), (inputs, outputs));
    }
    all
}

/// Parts by their text, which is the same for equal parts.
#[derive(Default)]
struct Parts {
    seen: HashMap<String, usize>,
    lines: Vec<String>,
    line_of: HashMap<String, usize>,
}

impl Parts {
    fn count(&mut self, value: &Value) {
        if !value.is_object() && !value.is_array() {
            return;
        }
        let times = self.seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 1 {
            match value {
                Value::Object(map) => map.values().for_each(|v| self.count(v)),
                Value::Array(list) => list.iter().for_each(|v| self.count(v)),
                _ => {}
            }
        }
    }

    fn compact(&mut self, value: &Value) -> Value {
        let text = value.to_string();
        if text.len() < SHORTEST || self.seen.get(&text).is_none_or(|times| *times < 2) {
            return self.with_compact_parts(value);
        }
        let line = match self.line_of.get(&text) {
            Some(line) => *line,
            None => {
                let part = self.with_compact_parts(value).to_string();
                self.lines.push(part);
                self.line_of.insert(text, self.lines.len() - 1);
                self.lines.len() - 1
            }
        };
        json!({ REFERENCE: line })
    }

    fn with_compact_parts(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                assert!(!map.contains_key(REFERENCE), "a recorded value has the key of references");
                Value::Object(map.iter().map(|(k, v)| (k.clone(), self.compact(v))).collect())
            }
            Value::Array(list) => list.iter().map(|v| self.compact(v)).collect(),
            other => other.clone(),
        }
    }
}

fn write(recorded: &Recorded) {
    let _ = fs::remove_dir_all(folder());
    let mut parts = Parts::default();
    recorded.values().flat_map(|(_, outputs)| outputs.values()).for_each(|value| parts.count(value));
    for (name, (inputs, outputs)) in recorded {
        let folder = scenarios().join(name);
        fs::create_dir_all(&folder).unwrap();
        for (file, text) in inputs {
            fs::write(folder.join(file), text).unwrap();
        }
        let lines: Vec<String> =
            outputs.iter().map(|(key, value)| format!("{}: {}", json!(key), parts.compact(value))).collect();
        fs::write(folder.join("expected.json"), format!("{{\n{}\n}}\n", lines.join(",\n"))).unwrap();
    }
    fs::write(folder().join("shared.jsonl"), parts.lines.join("\n") + "\n").unwrap();
}

/// The scenarios in the repository equal the recorded ones, to the last value.
pub fn check() {
    let Some(root) = data::root() else {
        return skipped("the recordings are not beside the repository");
    };
    let recorded = recorded(&root);
    if std::env::var("PILOTHOUSE_RECORDED").as_deref() == Ok("update") {
        write(&recorded);
    }
    let names = |path: &Path| -> BTreeSet<String> {
        fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect()
    };
    assert_eq!(names(&scenarios()), recorded.keys().cloned().collect(), "PILOTHOUSE_RECORDED=update writes them anew");
    let mut size = fs::metadata(folder().join("shared.jsonl")).unwrap().len() as usize;
    for (name, (inputs, outputs)) in &recorded {
        let folder = scenarios().join(name);
        for (file, text) in inputs {
            assert_eq!(fs::read_to_string(folder.join(file)).as_ref().ok(), Some(text), "{name}/{file}");
            size += text.len();
        }
        let carried = expected(&folder).unwrap_or_default();
        let carried: BTreeMap<&String, Value> = carried.iter().map(|(key, value)| (key, whole(value))).collect();
        assert_eq!(carried.keys().copied().collect::<Vec<_>>(), outputs.keys().collect::<Vec<_>>(), "{name}");
        for (key, value) in outputs {
            assert!(carried[key] == *value, "{name}/{key} differs from the recording");
        }
        size += fs::metadata(folder.join("expected.json")).unwrap().len() as usize;
    }
    assert!(size < LARGEST, "the recorded scenarios have {size} bytes");
    data::say(&format!(
        "conformance xds: {} scenarios in the repository are the recordings, {size} bytes",
        recorded.len()
    ));
}
