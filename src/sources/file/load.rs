//! Files read once, without watching: for the commands that need no server.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use super::{
    api_server::refused_by_api_server,
    disk::{Disk, Follow},
    findings::{findings_of, line_of, note, notes, shadowed, whole_file},
    parse::{Document, FileText, parse_files},
    scan::{Request, Root},
    written::{Written, written},
};
use crate::{
    model::{Config, ConfigKey, ConfigSnapshot, Kind, KindClass, Origin},
    sources::{Findings, Refused, Warned},
};

/// The content of a folder or file that was read once.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// Objects that are taken, the first of each key.
    pub configs: Vec<Arc<Config>>,
    /// The findings; files that cannot be read are among the refused.
    pub findings: Findings,
    /// Objects that are taken and that a Kubernetes API server would refuse, if these were looked for.
    pub for_api_server: Vec<Refused>,
}

impl Loaded {
    /// The objects by kind.
    #[must_use]
    pub fn snapshot(&self) -> ConfigSnapshot {
        ConfigSnapshot::of(self.configs.iter().cloned())
    }

    /// Adds the content of another place; objects that are already here win.
    pub fn extend(&mut self, other: Self) {
        let mut all = std::mem::take(&mut self.configs);
        all.extend(other.configs);
        self.configs = first_of_each_key(all, &mut self.findings.warned);
        self.findings.refused.extend(other.findings.refused);
        self.findings.warned.extend(other.findings.warned);
        self.findings.skipped.extend(other.findings.skipped);
        self.findings.ignored.extend(other.findings.ignored);
        self.for_api_server.extend(other.for_api_server);
    }
}

/// Reads a folder, or a file, once. `base` is the origin of its objects (source and cluster).
#[must_use]
pub fn load(path: &Path, base: &Origin, max_file_bytes: u64) -> Loaded {
    read(path, base, max_file_bytes, |_, _| {})
}

/// As [`load`], with all objects as they are written.
#[must_use]
pub fn load_written(path: &Path, base: &Origin, max_file_bytes: u64) -> (Loaded, Vec<Written>) {
    let mut all = Vec::new();
    let loaded = read(path, base, max_file_bytes, |file, text| all.extend(written(base, file, text)));
    (loaded, all)
}

/// As [`load`], and looks for objects that a Kubernetes API server would refuse.
#[must_use]
pub fn load_for_api_server(path: &Path, base: &Origin, max_file_bytes: u64) -> Loaded {
    let mut refused = Vec::new();
    let mut loaded = read(path, base, max_file_bytes, |file, text| refused.extend(refused_by_api_server(file, text)));
    loaded.for_api_server = refused;
    let taken: HashSet<ConfigKey> = loaded.configs.iter().map(|config| config.key()).collect();
    let key = |r: &Refused| {
        let kind =
            Kind::ALL.iter().copied().find(|kind| kind.class() == KindClass::Istio && kind.as_str() == r.kind)?;
        Some(ConfigKey { kind, namespace: r.namespace.as_str().into(), name: r.name.as_str().into() })
    };
    loaded.for_api_server.retain(|r| key(r).is_some_and(|key| taken.contains(&key)));
    loaded
}

/// `look` sees the text of each file.
fn read(path: &Path, base: &Origin, max_file_bytes: u64, mut look: impl FnMut(&Arc<PathBuf>, &str)) -> Loaded {
    let disk = Disk::default();
    let listing = disk.list(&Request::of(path));
    let mut findings = Findings::default();
    findings.warned.extend(notes(path, &listing).iter().map(|(path, warning)| note(path, warning)));
    let mut whole = |path: &Path, line: u32, reason: String| {
        findings.refused.push(whole_file(path, line, reason));
    };
    match &listing.root {
        Root::Listed => {}
        Root::Gone => whole(path, 0, "no such file or folder".to_string()),
        Root::Unreadable(reason) => whole(path, 0, reason.clone()),
    }
    for (path, reason) in listing.failures.iter().chain(&listing.refused) {
        whole(path, 0, reason.clone());
    }
    let mut configs = Vec::new();
    let mut left: Vec<Arc<PathBuf>> = listing.files.into_keys().map(Arc::new).collect();
    left.sort();
    while !left.is_empty() {
        let mut texts: Vec<(Arc<PathBuf>, String)> = Vec::new();
        for (path, result) in disk.read(&mut left, Follow::Yes, max_file_bytes) {
            match result {
                Ok((text, _)) => texts.push((path, text)),
                Err(error) => findings.refused.push(whole_file(&path, line_of(&error), error.to_string())),
            }
        }
        let files: Vec<FileText<'_>> =
            texts.iter().map(|(path, text)| FileText { path: path.clone(), text, before: &[] }).collect();
        for (file, documents) in files.iter().zip(parse_files(base, &files, &AtomicBool::new(false))) {
            let before = findings.refused.len();
            findings_of(&file.path, &documents, &mut findings);
            if let Some(what) = other_than_objects(&file.path, file.text) {
                let refused = findings.refused.drain(before..);
                findings.skipped.extend(refused.map(|r| Refused { reason: format!("{what}: {}", r.reason), ..r }));
            }
            look(&file.path, file.text);
            configs.extend(documents.iter().flat_map(Document::taken).cloned());
        }
    }
    let configs = first_of_each_key(configs, &mut findings.warned);
    Loaded { configs, findings, for_api_server: Vec::new() }
}

/// What a file is that nobody meant as objects, by its place and text: its documents need not be readable. A server that follows
/// a folder has no such exception, since a file that is half written looks alike.
fn other_than_objects(path: &Path, text: &str) -> Option<&'static str> {
    let is_of_chart = |folder: &Path| {
        folder.file_name().is_some_and(|name| name == "templates") && folder.with_file_name("Chart.yaml").is_file()
    };
    if text.contains("{{") && path.ancestors().skip(1).any(is_of_chart) {
        return Some("a template of a Helm chart (`helm template` renders it)");
    }
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    (is_json && !text.contains("apiVersion")).then_some("JSON of another program")
}

/// Leaves out objects that an earlier one hides, with a warning for each.
fn first_of_each_key(configs: Vec<Arc<Config>>, warned: &mut Vec<Warned>) -> Vec<Arc<Config>> {
    let mut seen: HashMap<ConfigKey, Arc<Config>> = HashMap::with_capacity(configs.len());
    let mut firsts = Vec::with_capacity(configs.len());
    for config in configs {
        if let Some(first) = seen.get(&config.key()) {
            warned.push(shadowed(&config, first));
            continue;
        }
        seen.insert(config.key(), config.clone());
        firsts.push(config);
    }
    firsts
}
