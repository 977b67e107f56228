//! Text of one file to documents, each taken, refused or passed over by itself.
//!
//! Pure. Lines inside an outcome count from the document's own first line, so that an unchanged document that moved in its
//! file is used again as it is.

use std::{
    cell::OnceCell,
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rayon::prelude::*;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::{defaults::filled, place::misfit};
use crate::{
    model::{
        Config, ConfigKey, Kind, Origin,
        decode::{DecodeError, with_warnings},
        validation::{admission, validate},
    },
    runtime::catch,
    sources::yaml::{self, Chunk, Outline},
};

/// Fewer documents are not worth another thread.
const WORTH_A_THREAD: usize = 32;
/// Documents that are given to the threads at once: the texts of another folder get their turn in between.
const AT_ONCE: usize = 1024;

/// The outcome of one object of a document.
#[derive(Debug, Clone)]
pub enum ObjectOutcome {
    /// The object is sound and is taken.
    Taken {
        /// The object.
        config: Arc<Config>,
        /// Its warnings.
        warnings: Arc<[Notice]>,
    },
    /// The object is not taken; its last good version stays.
    Refused(Arc<RefusedObject>),
    /// Of a kind that is not supported, or that is read of the main cluster only.
    Ignored {
        /// `apiVersion` as written.
        api_version: Arc<str>,
        /// `kind` as written.
        kind: Arc<str>,
        /// Name as written.
        name: Arc<str>,
    },
}

/// A warning about an object that is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Line after the document's first, from 0.
    pub line: u32,
    /// Column, from 1; 0 when unknown.
    pub column: u32,
    /// The warning, for a person.
    pub text: String,
}

/// A refusal of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedObject {
    /// Line after the document's first, from 0.
    pub line: u32,
    /// Column, from 1; 0 when unknown.
    pub column: u32,
    /// Identity of the object, as far as it can be read.
    pub identity: DocumentIdentity,
    /// The reason, for a person.
    pub reason: String,
    /// It does not look like a Kubernetes object.
    pub foreign: bool,
}

/// Kind, namespace and name as written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DocumentIdentity {
    /// `apiVersion`; empty when unknown.
    pub api_version: String,
    /// `kind`; empty when unknown.
    pub kind: String,
    /// `metadata.namespace`; empty when unknown.
    pub namespace: String,
    /// `metadata.name`; empty when unknown.
    pub name: String,
    /// Read from a sound document; otherwise guessed from lines of a broken one.
    pub sound: bool,
}

impl DocumentIdentity {
    /// The key, if the document is sound, of a supported kind, and has a name.
    #[must_use]
    pub fn key(&self) -> Option<ConfigKey> {
        let kind = Kind::parse(&self.api_version, &self.kind).filter(|_| self.sound && !self.name.is_empty())?;
        Some(ConfigKey { kind, namespace: kind.namespace(&self.namespace).into(), name: self.name.as_str().into() })
    }
}

/// One document of a file.
#[derive(Debug, Clone)]
pub struct Document {
    /// Line of the file on which it begins, from 1.
    pub line: u32,
    /// Hash of its text.
    pub hash: u64,
    /// Its objects; more than one for a `List`.
    pub outcomes: Arc<[ObjectOutcome]>,
}

impl Document {
    /// The objects of this document that are taken.
    pub fn taken(&self) -> impl Iterator<Item = &Arc<Config>> {
        self.outcomes.iter().filter_map(|o| match o {
            ObjectOutcome::Taken { config, .. } => Some(config),
            _ => None,
        })
    }

    /// Whether it could not be read well enough to know which objects it means.
    pub(super) fn is_broken(&self) -> bool {
        self.outcomes.iter().any(|o| matches!(o, ObjectOutcome::Refused(r) if r.identity.key().is_none()))
    }
}

/// A file to be read.
#[derive(Debug)]
pub struct FileText<'a> {
    /// Its path.
    pub path: Arc<PathBuf>,
    /// Its content.
    pub text: &'a str,
    /// Its documents of the time before.
    pub before: &'a [Document],
}

/// Reads files, in parallel when there is much to read. Documents with a text that they had before are not read again.
/// `base` is the origin of all of them, without file and line. Once `stop` is set it ends early, and the result is of no
/// use.
#[must_use]
pub fn parse_files(base: &Origin, files: &[FileText<'_>], stop: &AtomicBool) -> Vec<Vec<Document>> {
    let mut jobs: Vec<(usize, usize, Chunk<'_>)> = Vec::new();
    let mut results: Vec<Vec<Document>> = files
        .iter()
        .enumerate()
        .map(|(file, text)| {
            let known: HashMap<u64, &Document> = text.before.iter().map(|d| (d.hash, d)).collect();
            let mut documents = Vec::new();
            for chunk in yaml::documents(text.text) {
                let hash = xxh3_64(chunk.text.as_bytes());
                let outcomes = known.get(&hash).map(|d| d.outcomes.clone());
                if outcomes.is_none() {
                    jobs.push((file, documents.len(), chunk));
                }
                documents.push(Document { line: chunk.line, hash, outcomes: outcomes.unwrap_or_default() });
            }
            documents
        })
        .collect();
    let read = |&(file, _, chunk): &(usize, usize, Chunk<'_>)| parse_document(base, &files[file].path, chunk);
    let mut outcomes = Vec::with_capacity(jobs.len());
    for jobs in jobs.chunks(AT_ONCE).take_while(|_| !stop.load(Ordering::Relaxed)) {
        if jobs.len() < WORTH_A_THREAD {
            // A large file of another folder may keep the other threads busy.
            outcomes.extend(jobs.iter().map(read));
        } else {
            outcomes.par_extend(jobs.par_iter().with_min_len(WORTH_A_THREAD).map(read));
        }
    }
    for ((file, document, _), outcomes) in jobs.into_iter().zip(outcomes) {
        results[file][document].outcomes = outcomes;
    }
    results
}

/// Whether a text holds no document.
#[must_use]
pub fn is_blank(text: &str) -> bool {
    yaml::documents(text).is_empty()
}

/// Reads one file on this thread.
#[must_use]
pub fn parse_text(base: &Origin, path: &Arc<PathBuf>, text: &str) -> Vec<Document> {
    let file = FileText { path: path.clone(), text, before: &[] };
    parse_files(base, &[file], &AtomicBool::new(false)).pop().unwrap_or_default()
}

/// Reads one document. A panic while doing so refuses the document and nothing else.
fn parse_document(base: &Origin, path: &Arc<PathBuf>, chunk: Chunk<'_>) -> Arc<[ObjectOutcome]> {
    let read = catch(|| outcomes(base, path, chunk));
    read.unwrap_or_else(|_| {
        let reason = "reading it failed inside pilothouse; please report this document".to_string();
        vec![ObjectOutcome::Refused(Arc::new(RefusedObject {
            line: 0,
            column: 0,
            identity: guess(chunk.text),
            reason,
            foreign: false,
        }))]
    })
    .into()
}

fn outcomes(base: &Origin, path: &Arc<PathBuf>, chunk: Chunk<'_>) -> Vec<ObjectOutcome> {
    let values = match yaml::values(chunk.text) {
        Ok(values) => values,
        Err(error) => {
            let (line, column) = (error.line.saturating_sub(1), error.column);
            return vec![ObjectOutcome::Refused(Arc::new(RefusedObject {
                line,
                column,
                identity: guess(chunk.text),
                reason: error.reason,
                foreign: false,
            }))];
        }
    };
    let origin = |line: u32| Origin { file: Some(path.clone()), line: chunk.line + line, ..base.clone() };
    let written = DocumentText { text: chunk.text, outline: OnceCell::new() };
    let mut all = Vec::new();
    for value in &values {
        let Some(items) = list_items(value) else {
            all.extend(object(value, &written, None, origin(0)));
            continue;
        };
        for (i, item) in items.iter().enumerate() {
            let (line, _) = written.place(Some(i), "");
            all.extend(object(item, &written, Some(i), origin(line)));
        }
    }
    all
}

/// The text of a document, and where its fields are, which is looked for when something is wrong.
pub(super) struct DocumentText<'a> {
    pub(super) text: &'a str,
    pub(super) outline: OnceCell<Option<Outline>>,
}

impl DocumentText<'_> {
    /// Line (after the document's first, from 0) and column (from 1; 0 when unknown) of the field that the reason begins
    /// with, in the document or in one entry of its list.
    pub(super) fn place(&self, item: Option<usize>, reason: &str) -> (u32, u32) {
        let outline = self.outline.get_or_init(|| Outline::of(self.text)).as_ref();
        let place = outline.and_then(|o| match item {
            Some(item) => o.place_in_item(item, reason),
            None => o.place_of(reason),
        });
        place.map_or((0, 0), |p| (p.line.saturating_sub(1), p.column))
    }
}

/// The entries of `kind: List` or of a typed list such as `ServiceEntryList`.
pub(super) fn list_items(value: &Value) -> Option<&Vec<Value>> {
    let kind = value.get("kind")?.as_str()?;
    kind.ends_with("List").then(|| value.get("items")?.as_array()).flatten()
}

/// Reads one object: the document, or one entry of its list.
fn object(value: &Value, written: &DocumentText<'_>, item: Option<usize>, origin: Origin) -> Option<ObjectOutcome> {
    let refuse_at = |(line, column): (u32, u32), reason: String| {
        Some(ObjectOutcome::Refused(Arc::new(RefusedObject {
            line,
            column,
            identity: identity(value),
            reason,
            foreign: is_foreign(value),
        })))
    };
    let refuse = |reason: String| refuse_at(written.place(item, &reason), reason);
    if value.is_null() {
        return None;
    }
    if !value.is_object() {
        return refuse("it is not an object with apiVersion, kind and metadata".to_string());
    }
    let who = identity(value);
    if who.kind.is_empty() || who.api_version.is_empty() {
        let missing = if who.kind.is_empty() { "kind" } else { "apiVersion" };
        return refuse(format!("{missing} is missing"));
    }
    match with_warnings(&filled(value), origin) {
        Ok((config, _)) if config.meta.name.is_empty() => refuse("metadata.name is missing".to_string()),
        Ok((config, _)) if !config.is_of_main_cluster() && !config.kind().is_read_of_remote_clusters() => {
            Some(ObjectOutcome::Ignored {
                api_version: who.api_version.into(),
                kind: who.kind.into(),
                name: who.name.into(),
            })
        }
        Ok((mut config, mut warnings)) => {
            if config.meta.namespace.is_empty() {
                config.meta.namespace = config.kind().namespace("").into();
            }
            let mut verdict = validate(&config);
            let admitted = admission(config.kind(), value);
            verdict.errors.extend(admitted.errors);
            verdict.warnings.extend(admitted.warnings);
            if !verdict.is_valid() {
                // A misspelt field is often why another one is missing.
                let reasons: Vec<String> = verdict.errors.into_iter().chain(warnings).collect();
                return refuse(reasons.join("; "));
            }
            warnings.extend(verdict.warnings);
            warnings.extend(config.without_effect().map(String::from));
            let notice = |text: String| {
                let (line, column) = written.place(item, &text);
                Notice { line, column, text }
            };
            Some(ObjectOutcome::Taken {
                config: Arc::new(config),
                warnings: warnings.into_iter().map(notice).collect(),
            })
        }
        Err(DecodeError::UnknownKind { api_version, kind }) => {
            Some(ObjectOutcome::Ignored { api_version: api_version.into(), kind: kind.into(), name: who.name.into() })
        }
        Err(DecodeError::Invalid(reason)) => {
            let kind = Kind::parse(&who.api_version, &who.kind).filter(|_| item.is_none());
            match kind.and_then(|kind| misfit(written.text, kind)) {
                Some((error, path)) => {
                    let named = path.is_empty() || reason.contains(&path);
                    let reason = if named { reason } else { format!("{path}: {}", bare(&reason)) };
                    refuse_at((error.line.saturating_sub(1), error.column), reason)
                }
                None => refuse(reason),
            }
        }
    }
}

/// The reason without the place that a reader of values could only guess.
fn bare(reason: &str) -> &str {
    reason.strip_prefix("spec: ").unwrap_or(reason)
}

/// Whether a document does not look like a Kubernetes object: a chart, its values, a workflow. One that has lost a single of
/// these fields still looks like one.
fn is_foreign(value: &Value) -> bool {
    let has = |key: &str| usize::from(value.get(key).is_some());
    let metadata = usize::from(value.get("metadata").is_some_and(Value::is_object));
    has("kind") + has("apiVersion") + metadata < 2
}

/// The identity that a document writes.
pub(super) fn identity(value: &Value) -> DocumentIdentity {
    let text = |v: Option<&Value>| v.and_then(Value::as_str).unwrap_or_default().to_string();
    let meta = |key: &str| text(value.get("metadata").and_then(|m| m.get(key)));
    DocumentIdentity {
        api_version: text(value.get("apiVersion")),
        kind: text(value.get("kind")),
        namespace: meta("namespace"),
        name: meta("name"),
        sound: true,
    }
}

/// The likely identity of a broken document, from its lines: for the message only.
fn guess(text: &str) -> DocumentIdentity {
    let mut who = DocumentIdentity::default();
    let mut in_metadata = false;
    for line in text.lines().take(200) {
        let indented = line.starts_with(char::is_whitespace);
        let Some((key, value)) = line.trim().split_once(':') else { continue };
        let value = value.trim().trim_matches(['"', '\'', ',']).to_string();
        match key.trim_matches('"') {
            "metadata" if !indented => in_metadata = true,
            "kind" if !indented => who.kind = value,
            "apiVersion" if !indented => who.api_version = value,
            "name" if indented && in_metadata && who.name.is_empty() => who.name = value,
            "namespace" if indented && in_metadata && who.namespace.is_empty() => who.namespace = value,
            _ if !indented => in_metadata = false,
            _ => {}
        }
    }
    who
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<Document> {
        parse_text(&Origin::default(), &Arc::new("x.yaml".into()), text)
    }

    fn refusals(text: &str) -> Vec<(u32, u32, String)> {
        let all = parsed(text).into_iter();
        all.flat_map(|d| {
            d.outcomes
                .iter()
                .filter_map(|o| match o {
                    ObjectOutcome::Refused(r) => Some((d.line + r.line, r.column, r.reason.clone())),
                    _ => None,
                })
                .collect::<Vec<_>>()
        })
        .collect()
    }

    const GOOD: &str = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata:\n  name: a\n  namespace: ns\nspec:\n  hosts: [a.b]\n";

    #[test]
    fn one_bad_document_leaves_the_others_alone() {
        let text = format!("{GOOD}---\nkind: [\n---\n{}", GOOD.replace("name: a", "name: b"));
        let documents = parsed(&text);
        let taken =
            documents.iter().flat_map(|d| d.outcomes.iter()).filter(|o| matches!(o, ObjectOutcome::Taken { .. }));
        assert_eq!(taken.count(), 2);
        assert_eq!(refusals(&text).len(), 1);
        assert_eq!(refusals(&text)[0].0, 9);
    }

    #[test]
    fn a_wrong_type_is_refused_with_its_place() {
        let text = format!("# c\n---\n{}", GOOD.replace("hosts: [a.b]", "ports:\n  - number: 80\n    name: [x]\n"));
        let found = refusals(&text);
        assert_eq!((found.len(), found[0].0), (1, 11), "{found:?}");
        assert!(found[0].2.contains("name"), "{found:?}");
        assert!(found[0].1 > 0);
    }

    #[test]
    fn lists_are_taken_apart() {
        let item = |name: &str| format!("- apiVersion: v1\n  kind: Namespace\n  metadata:\n    name: {name}\n");
        let text = format!("apiVersion: v1\nkind: List\nitems:\n{}{}- kind: Namespace\n", item("a"), item("b"));
        let documents = parsed(&text);
        assert_eq!(documents[0].outcomes.len(), 3);
        assert_eq!(refusals(&text), [(12, 3, "apiVersion is missing".to_string())]);
    }

    #[test]
    fn findings_name_the_place_of_their_field() {
        let invalid = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a, namespace: b}\nspec:\n  \
                       hosts: [a.b]\n  http:\n  - route:\n    - destination: {host: a.b}\n      weight: -5\n";
        let found = refusals(&format!("---\n{invalid}"));
        assert_eq!((found[0].0, found[0].1), (10, 7), "{found:?}");
        let misspelt = parsed(&GOOD.replace("hosts: [a.b]", "hosts: [a.b]\n  resoluton: DNS"));
        let ObjectOutcome::Taken { warnings, .. } = &misspelt[0].outcomes[0] else { panic!("{misspelt:?}") };
        let notice = Notice { line: 7, column: 3, text: "unknown field spec.resoluton".to_string() };
        assert_eq!(warnings.to_vec(), [notice]);
    }

    #[test]
    fn the_same_text_is_not_read_again() {
        let path = Arc::new(PathBuf::from("x.yaml"));
        let before = parsed(GOOD);
        let text = format!("---\n{}---\n{GOOD}", GOOD.replace("name: a", "name: b"));
        let file = FileText { path, text: &text, before: &before };
        let after = parse_files(&Origin::default(), &[file], &AtomicBool::new(false)).remove(0);
        assert!(Arc::ptr_eq(&after[1].outcomes, &before[0].outcomes));
        assert_eq!(after[1].line, 10);
    }

    #[test]
    fn many_documents_keep_their_order() {
        let text: String =
            (0..500).map(|i| format!("---\n{}", GOOD.replace("name: a", &format!("name: a{i}")))).collect();
        for (i, document) in parsed(&text).iter().enumerate() {
            let ObjectOutcome::Taken { config, .. } = &document.outcomes[0] else { panic!("{:?}", document.outcomes) };
            assert_eq!(*config.meta.name, *format!("a{i}"));
            assert_eq!(config.origin.line as usize, 2 + i * 8);
        }
    }

    #[test]
    fn a_broken_document_is_named_by_its_lines() {
        let text = GOOD.replace("hosts: [a.b]", "hosts: [a.b");
        let documents = parsed(&text);
        let ObjectOutcome::Refused(refusal) = &documents[0].outcomes[0] else { panic!("taken") };
        assert_eq!((refusal.identity.kind.as_str(), refusal.identity.name.as_str()), ("ServiceEntry", "a"));
        assert_eq!(refusal.identity.key(), None);
    }
}
