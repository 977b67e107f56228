//! Where the cases are, and reading of their files.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde_json::Value;

/// One case: a name and a folder.
pub struct Case {
    /// `family/path`.
    pub id: String,
    /// The folder with its files.
    pub folder: PathBuf,
    /// Name of the proxy, where a folder holds several.
    pub proxy: String,
}

/// The outcome of a case.
pub enum Verdict {
    /// Everything agrees.
    Passed,
    /// Something differs; a line each.
    Failed(Vec<String>),
    /// It asks for something that is not built yet.
    NotYet(String),
}

impl Verdict {
    /// Passed when there is nothing to say.
    pub fn of(differences: Vec<String>) -> Self {
        if differences.is_empty() { Self::Passed } else { Self::Failed(differences) }
    }

    /// The differences, or the reason.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Passed => vec!["passed".to_string()],
            Self::Failed(lines) => lines.clone(),
            Self::NotYet(why) => vec![format!("not yet: {why}")],
        }
    }
}

/// The folder of the recordings, if it is there.
pub fn root() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance");
    let folder = std::env::var_os("PILOTHOUSE_CONFORMANCE").map_or(beside, PathBuf::from);
    folder.is_dir().then_some(folder)
}

/// A line on standard error past the harness, which shows nothing of a test that passes.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The folder of the cases that the repository carries beside the recorded ones.
pub fn own(family: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/cases").join(family)
}

/// The folders that hold cases of a family: the recordings, and those that the repository carries.
pub fn folders(family: &str) -> Vec<PathBuf> {
    root().into_iter().map(|f| f.join(family)).chain([own(family)]).filter(|f| f.is_dir()).collect()
}

/// All folders below a family that hold `marker`.
pub fn cases(family: &str, marker: &str) -> Vec<Case> {
    cases_in(family, folders(family), marker)
}

/// All folders below these that hold `marker`.
pub fn cases_in(family: &str, folders: Vec<PathBuf>, marker: &str) -> Vec<Case> {
    let mut found = Vec::new();
    for base in folders {
        let mut open = vec![base.clone()];
        while let Some(folder) = open.pop() {
            if folder.join(marker).is_file() {
                let name = folder.strip_prefix(&base).unwrap().to_string_lossy().into_owned();
                found.push(Case { id: format!("{family}/{name}"), folder, proxy: String::new() });
                continue;
            }
            open.extend(fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir()));
        }
    }
    found.sort_by(|a, b| a.id.cmp(&b.id));
    found
}

/// A JSON file; `Null` when it is not there.
pub fn json(path: &Path) -> Value {
    fs::read(path).map_or(Value::Null, |text| serde_json::from_slice(&text).unwrap())
}

/// The documents of a YAML file; none when it is not there.
pub fn yaml(path: &Path) -> Vec<Value> {
    let Ok(text) = fs::read_to_string(path) else { return Vec::new() };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    documents.into_iter().filter(|d| !d.is_null()).collect()
}
