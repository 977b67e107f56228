//! Files read once, without watching: for the commands that need no server.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    parse::{Document, FileText, parse_files},
    scan::{ReadError, Root, read, scan},
    tree::findings_of,
};
use crate::{
    model::{Config, ConfigKey, ConfigSnapshot, Origin},
    sources::{Findings, Refused},
};

/// What was read.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// Objects that are taken, the first of each key.
    pub configs: Vec<Arc<Config>>,
    /// What was found wrong; files that cannot be read are among the refused.
    pub findings: Findings,
}

impl Loaded {
    /// The objects by kind.
    #[must_use]
    pub fn snapshot(&self) -> ConfigSnapshot {
        ConfigSnapshot::of(self.configs.iter().cloned())
    }

    /// Adds what another place holds; objects that are already here win.
    pub fn extend(&mut self, other: Self) {
        let mut all = std::mem::take(&mut self.configs);
        all.extend(other.configs);
        self.configs = first_of_each_key(all);
        self.findings.refused.extend(other.findings.refused);
        self.findings.warned.extend(other.findings.warned);
        self.findings.ignored.extend(other.findings.ignored);
    }
}

/// Reads a folder, or a file, once. `base` is the origin of what it holds (source and cluster).
#[must_use]
pub fn load(path: &Path, base: &Origin, max_file_bytes: u64) -> Loaded {
    let listing = scan(path, &[]);
    let mut findings = Findings::default();
    let mut whole = |path: &Path, line: u32, reason: String| {
        findings.refused.push(whole_file(path, line, reason));
    };
    match &listing.root {
        Root::Listed => {}
        Root::Gone => whole(path, 0, "no such file or folder".to_string()),
        Root::Unreadable(reason) => whole(path, 0, reason.clone()),
    }
    for (path, reason) in &listing.failures {
        whole(path, 0, reason.clone());
    }
    let mut texts: Vec<(Arc<PathBuf>, String)> = Vec::new();
    for path in listing.files.into_keys() {
        match read(&path, max_file_bytes) {
            Ok((text, _)) => texts.push((Arc::new(path), text)),
            Err(error) => whole(&path, line_of(&error), error.to_string()),
        }
    }
    let files: Vec<FileText<'_>> =
        texts.iter().map(|(path, text)| FileText { path: path.clone(), text, before: &[] }).collect();
    let mut configs = Vec::new();
    for (file, documents) in files.iter().zip(parse_files(base, &files)) {
        findings_of(&file.path, &documents, &mut findings);
        configs.extend(documents.iter().flat_map(Document::taken).cloned());
    }
    Loaded { configs: first_of_each_key(configs), findings }
}

fn first_of_each_key(configs: Vec<Arc<Config>>) -> Vec<Arc<Config>> {
    let mut seen: HashMap<ConfigKey, ()> = HashMap::with_capacity(configs.len());
    configs.into_iter().filter(|c| seen.insert(c.key(), ()).is_none()).collect()
}

/// The finding for a file that cannot be read at all.
#[must_use]
pub fn whole_file(path: &Path, line: u32, reason: String) -> Refused {
    Refused {
        file: path.display().to_string(),
        line,
        column: 0,
        kind: String::new(),
        namespace: String::new(),
        name: String::new(),
        reason,
    }
}

/// The line that a read error is about; 0 for the whole file.
#[must_use]
pub fn line_of(error: &ReadError) -> u32 {
    match error {
        ReadError::NotText { line, .. } => *line,
        _ => 0,
    }
}
