//! The documents of one folder, and the objects that are in force because of them.
//!
//! Very many new objects come into force step by step, those of the file that changed last among the first, so that a small
//! change does not wait for them; objects without a document go at once.
//!
//! Pure. The first document of a key wins, by path and then by place in the file. An object whose document is refused, or
//! whose file cannot be read, stays as it last was; an object whose document was removed is deleted, unless the deletion is held.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::Instant,
};

use indexmap::IndexSet;

use super::{
    findings::{findings_of, note, shadowed, whole_file},
    parse::{Document, ObjectOutcome},
    progress::is_below,
};
use crate::{
    model::{Config, ConfigKey},
    sources::{Change, Findings, MassDeletionGuard},
};

/// Objects in force, by key. Survives a restart of the source.
pub type InForce = HashMap<ConfigKey, Arc<Config>>;

#[derive(Debug, Default)]
struct FileState {
    documents: Vec<Document>,
    /// The file as a whole cannot be read: line and reason.
    failure: Option<(u32, String)>,
    broken: bool,
}

/// Where a key is written: file and document.
type DocumentPosition = (Arc<PathBuf>, usize, usize);

/// Where one key is written, in order. Nearly always it is one place, for which a map would be the larger part.
#[derive(Debug, Default)]
struct KeyPositions(Vec<(DocumentPosition, Arc<Config>)>);

impl KeyPositions {
    fn insert(&mut self, place: DocumentPosition, config: Arc<Config>) {
        self.remove(&place);
        let at = self.0.partition_point(|(p, _)| *p < place);
        self.0.reserve_exact(1);
        self.0.insert(at, (place, config));
    }

    fn remove(&mut self, place: &DocumentPosition) {
        self.0.retain(|(p, _)| p != place);
    }
}

/// The documents of one folder and the objects in force.
#[derive(Debug)]
pub struct Tree {
    files: BTreeMap<Arc<PathBuf>, FileState>,
    written: HashMap<ConfigKey, KeyPositions>,
    refused: HashMap<ConfigKey, BTreeSet<Arc<PathBuf>>>,
    in_force: InForce,
    /// Keys with a new document, the newest last.
    touched: IndexSet<ConfigKey>,
    /// Keys that have lost a document, or whose document is refused.
    loosened: HashSet<ConfigKey>,
    /// Keys in force without a document, and since when.
    unwritten: BTreeMap<ConfigKey, Instant>,
    guard: MassDeletionGuard,
    holding: Vec<ConfigKey>,
    /// Paths below which missing objects are not known to be gone.
    unknown: BTreeSet<PathBuf>,
    /// The time of the oldest text that is not parsed yet: an object without a document since then may be in it.
    unparsed_since: Option<Instant>,
    /// Warnings about names in the folder.
    notes: Vec<(PathBuf, String)>,
    /// The findings may be others than when they were taken last.
    has_new_findings: bool,
}

impl Tree {
    /// A tree without files; `in_force` are the objects that an earlier run had published.
    #[must_use]
    pub fn new(guard: MassDeletionGuard, in_force: InForce) -> Self {
        let now = Instant::now();
        let unwritten = in_force.keys().map(|key| (key.clone(), now)).collect();
        Self {
            files: BTreeMap::new(),
            written: HashMap::new(),
            refused: HashMap::new(),
            in_force,
            touched: IndexSet::new(),
            loosened: HashSet::new(),
            unwritten,
            guard,
            holding: Vec::new(),
            unknown: BTreeSet::new(),
            unparsed_since: None,
            notes: Vec::new(),
            has_new_findings: true,
        }
    }

    /// The documents of a file when it was last read.
    #[must_use]
    pub fn documents(&self, path: &Arc<PathBuf>) -> &[Document] {
        self.files.get(path).map_or(&[], |f| &f.documents)
    }

    /// Whether a file is known.
    #[must_use]
    pub fn has(&self, path: &Arc<PathBuf>) -> bool {
        self.files.contains_key(path)
    }

    /// The files that are known.
    pub fn paths(&self) -> impl Iterator<Item = &Arc<PathBuf>> {
        self.files.keys()
    }

    /// A file was read.
    pub fn replace(&mut self, path: &Arc<PathBuf>, documents: Vec<Document>) {
        self.forget(path);
        for (d, document) in documents.iter().enumerate() {
            for (o, outcome) in document.outcomes.iter().enumerate() {
                match outcome {
                    ObjectOutcome::Taken { config, .. } => {
                        let key = config.key();
                        self.touched.insert(key.clone());
                        let places = self.written.entry(key).or_default();
                        places.insert((path.clone(), d, o), config.clone());
                        self.has_new_findings |= places.0.len() > 1;
                    }
                    ObjectOutcome::Refused(refusal) => {
                        if let Some(key) = refusal.identity.key() {
                            self.loosened.insert(key.clone());
                            self.refused.entry(key).or_default().insert(path.clone());
                        }
                    }
                    ObjectOutcome::Ignored { .. } => {}
                }
            }
        }
        let broken = documents.iter().any(Document::is_broken);
        self.has_new_findings |= has_findings(&documents);
        self.files.insert(path.clone(), FileState { documents, failure: None, broken });
    }

    /// A file cannot be read: its objects stay.
    pub fn fail(&mut self, path: &Arc<PathBuf>, line: u32, reason: String) {
        let failure = Some((line, reason));
        let file = self.files.entry(path.clone()).or_default();
        self.has_new_findings |= file.failure != failure;
        file.failure = failure;
    }

    /// A file was removed.
    pub fn remove(&mut self, path: &Arc<PathBuf>) {
        self.forget(path);
        self.files.remove(path);
    }

    /// Paths that cannot be listed or read: missing objects below them are not known to be gone.
    pub fn set_unknown(&mut self, paths: Vec<PathBuf>) {
        self.unknown = paths.into_iter().collect();
    }

    /// The time of the oldest text that is not parsed yet. Objects that have had no document since then are kept.
    pub const fn set_unparsed_since(&mut self, since: Option<Instant>) {
        self.unparsed_since = since;
    }

    /// Warnings about names in the folder.
    pub fn set_notes(&mut self, notes: Vec<(PathBuf, String)>) {
        self.has_new_findings |= self.notes != notes;
        self.notes = notes;
    }

    fn forget(&mut self, path: &Arc<PathBuf>) {
        let Some(file) = self.files.get(path) else { return };
        self.has_new_findings |= file.failure.is_some() || has_findings(&file.documents);
        for (d, document) in file.documents.iter().enumerate() {
            for (o, outcome) in document.outcomes.iter().enumerate() {
                let key = match outcome {
                    ObjectOutcome::Taken { config, .. } => config.key(),
                    ObjectOutcome::Refused(refusal) => match refusal.identity.key() {
                        Some(key) => key,
                        None => continue,
                    },
                    ObjectOutcome::Ignored { .. } => continue,
                };
                if let Some(places) = self.written.get_mut(&key) {
                    self.has_new_findings |= places.0.len() > 1;
                    places.remove(&(path.clone(), d, o));
                    if places.0.is_empty() {
                        self.written.remove(&key);
                    }
                }
                if let Some(files) = self.refused.get_mut(&key) {
                    files.remove(path);
                    if files.is_empty() {
                        self.refused.remove(&key);
                    }
                }
                self.loosened.insert(key);
            }
        }
    }

    /// Whether documents are not in force yet: the next commit goes on with them.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        !self.touched.is_empty()
    }

    /// The next key with a new document: the newest and the oldest by turns, so that none waits for ever.
    fn next_touched(&mut self, turn: usize) -> Option<ConfigKey> {
        if turn.is_multiple_of(2) { self.touched.pop() } else { self.touched.swap_remove_index(0) }
    }

    /// Brings the objects in force up to date, with so many new documents at most, and gives the change.
    pub fn commit(&mut self, most: usize, now: Instant) -> Change {
        for key in std::mem::take(&mut self.loosened) {
            if self.wanted(&key).is_some() {
                self.touched.insert(key);
            } else if self.in_force.contains_key(&key) {
                self.unwritten.entry(key).or_insert(now);
            }
        }
        let mut upserts = Vec::new();
        for turn in 0..most {
            let Some(key) = self.next_touched(turn) else { break };
            let Some(config) = self.wanted(&key).cloned() else { continue };
            self.unwritten.remove(&key);
            if self.in_force.get(&key).is_none_or(|old| old.stamp != config.stamp) {
                upserts.push(config.clone());
                self.in_force.insert(key, config);
            }
        }
        // An earlier run's objects may have been written again by a file that did not touch them since.
        let written = &self.written;
        self.unwritten.retain(|key, _| !written.contains_key(key));
        let gone = self.unwritten.iter().filter(|(key, since)| !self.is_kept(key, **since));
        let deletes: Vec<ConfigKey> = gone.map(|(key, _)| key.clone()).collect();
        let allowed = self.guard.allow(deletes.len(), self.in_force.len(), deletes.len() == self.in_force.len(), now);
        upserts.sort_by(|a, b| a.origin.file.cmp(&b.origin.file).then(a.origin.line.cmp(&b.origin.line)));
        if !allowed {
            self.holding = deletes;
            return Change::Delta { upserts, deletes: Vec::new() };
        }
        self.holding.clear();
        for key in &deletes {
            self.in_force.remove(key);
            self.unwritten.remove(key);
        }
        Change::Delta { upserts, deletes }
    }

    /// The object that the documents want for this key. A refused document that belongs to the object in force keeps it.
    fn wanted(&self, key: &ConfigKey) -> Option<&Arc<Config>> {
        let (_, first) = self.written.get(key)?.0.first()?;
        let Some(now) = self.in_force.get(key) else { return Some(first) };
        let file = now.origin.file.as_ref();
        let refused_here = self.refused.get(key).zip(file).is_some_and(|(files, f)| files.contains(f));
        let written_here = self.written.get(key).is_some_and(|p| p.0.iter().any(|((f, _, _), _)| Some(f) == file));
        Some(if refused_here && !written_here { now } else { first })
    }

    /// Whether an object that has no document since then stays, because one may be where nothing could be read.
    fn is_kept(&self, key: &ConfigKey, since: Instant) -> bool {
        if self.unparsed_since.is_some_and(|unparsed| unparsed <= since) || self.refused.contains_key(key) {
            return true;
        }
        self.in_force.get(key).and_then(|c| c.origin.file.as_ref()).is_some_and(|file| self.is_unclear(file))
    }

    /// Whether documents of a file may be missing that it has.
    fn is_unclear(&self, file: &Arc<PathBuf>) -> bool {
        is_below(&self.unknown, file) || self.files.get(file).is_some_and(|f| f.broken || f.failure.is_some())
    }

    /// Whether an object may be written in a form or at a place that cannot be read.
    #[must_use]
    pub fn has_unclear(&self) -> bool {
        !self.refused.is_empty() || !self.unknown.is_empty() || self.files.keys().any(|file| self.is_unclear(file))
    }

    /// Puts those objects of an earlier process in force whose document is refused, or whose file cannot be read.
    pub fn recall(&mut self, saved: Vec<Arc<Config>>, now: Instant) {
        for config in saved {
            let (key, file) = (config.key(), config.origin.file.as_ref());
            let is_refused = self.refused.get(&key).is_some_and(|files| file.is_none_or(|file| files.contains(file)));
            let is_lost = match self.written.get(&key) {
                Some(places) => is_refused && places.0.iter().all(|((written, _, _), _)| Some(written) != file),
                None => is_refused || self.refused.contains_key(&key) || file.is_some_and(|file| self.is_unclear(file)),
            };
            if is_lost {
                self.unwritten.entry(key.clone()).or_insert(now);
                self.in_force.insert(key, config);
            }
        }
    }

    /// Lets a held deletion through at the next commit.
    pub fn confirm(&mut self) {
        self.guard.confirm();
    }

    /// The time at which a held deletion takes effect without a confirmation.
    #[must_use]
    pub fn held_until(&self) -> Option<Instant> {
        self.guard.until()
    }

    /// Keys whose deletion is held.
    #[must_use]
    pub fn held(&self) -> &[ConfigKey] {
        &self.holding
    }

    /// Keys that are in force without a sound document.
    #[must_use]
    pub fn kept(&self) -> Vec<ConfigKey> {
        let kept = self.unwritten.iter().filter(|(key, since)| self.is_kept(key, **since));
        kept.map(|(key, _)| key.clone()).collect()
    }

    /// The objects in force.
    #[must_use]
    pub fn in_force(&self) -> &InForce {
        &self.in_force
    }

    /// The findings, if they may be others than the last time.
    pub fn take_findings(&mut self) -> Option<Findings> {
        std::mem::take(&mut self.has_new_findings).then(|| self.findings())
    }

    /// The findings of the documents, up to the bound in the order of the files.
    #[must_use]
    pub fn findings(&self) -> Findings {
        let mut findings = Findings::default();
        for (path, file) in &self.files {
            if let Some((line, reason)) = &file.failure {
                findings.refused.push(whole_file(path, *line, reason.clone()));
            } else {
                for document in &file.documents {
                    findings_of(path, std::slice::from_ref(document), &mut findings);
                    findings.bound();
                }
            }
        }
        for places in self.written.values() {
            let Some(((_, first), others)) = places.0.split_first() else { continue };
            findings.warned.extend(others.iter().map(|(_, config)| shadowed(config, first)));
        }
        for (path, warning) in &self.notes {
            findings.warned.push(note(path, warning));
        }
        findings.bound();
        findings.warned.sort();
        findings.refused.sort();
        findings
    }
}

/// Whether documents may have findings.
fn has_findings(documents: &[Document]) -> bool {
    let has =
        |outcome: &ObjectOutcome| !matches!(outcome, ObjectOutcome::Taken { warnings, .. } if warnings.is_empty());
    documents.iter().any(|document| document.outcomes.iter().any(has))
}

#[cfg(test)]
mod tests;
