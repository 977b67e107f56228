//! The messages of a source: batches of changes, and findings.

use std::sync::Arc;

use crate::model::{Config, ConfigKey};

/// Name of a source: `file:DIR`, `kube:CLUSTER`, `xds:ADDRESS`.
pub type SourceId = Arc<str>;

/// A change of one source's content.
#[derive(Debug, Clone)]
pub struct SourceBatch {
    /// The source of the objects.
    pub source: SourceId,
    /// The change.
    pub change: Change,
}

/// The two forms of a change.
#[derive(Debug, Clone)]
pub enum Change {
    /// All objects of the source; its other objects are removed.
    Full(Vec<Arc<Config>>),
    /// New or different objects, and keys of removed ones.
    Delta {
        /// New or different objects.
        upserts: Vec<Arc<Config>>,
        /// Keys of removed objects.
        deletes: Vec<ConfigKey>,
    },
}

impl Change {
    /// Whether it changes nothing. A full snapshot is never empty: the receiver may hold something else.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Delta { upserts, deletes } if upserts.is_empty() && deletes.is_empty())
    }
}

/// A document that is not taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Refused {
    /// File, or the place that stands for it.
    pub file: String,
    /// Line, from 1; 0 when the whole file is meant.
    pub line: u32,
    /// Column, from 1; 0 when unknown.
    pub column: u32,
    /// Kind as written; empty when it cannot be read.
    pub kind: String,
    /// Namespace as written.
    pub namespace: String,
    /// Name as written; empty when it cannot be read.
    pub name: String,
    /// The reason, for a person.
    pub reason: String,
}

/// A document that is taken although something looks wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Warned {
    /// File, or the place that stands for it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1; 0 when unknown.
    pub column: u32,
    /// Kind as written.
    pub kind: String,
    /// Namespace as written.
    pub namespace: String,
    /// Name as written.
    pub name: String,
    /// The warning, for a person.
    pub warning: String,
}

/// A document of a kind that is not supported.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Ignored {
    /// File, or the place that stands for it.
    pub file: String,
    /// Line of the document.
    pub line: u32,
    /// `apiVersion` as written.
    pub api_version: String,
    /// `kind` as written.
    pub kind: String,
    /// Name as written.
    pub name: String,
}

/// The findings of a source in its documents.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Findings {
    /// Documents that are not taken.
    pub refused: Vec<Refused>,
    /// Warnings about documents that are taken.
    pub warned: Vec<Warned>,
    /// Documents that are no Kubernetes objects.
    pub skipped: Vec<Refused>,
    /// Objects of kinds that are not read.
    pub ignored: Vec<Ignored>,
    /// Further ones, which are only counted.
    #[serde(skip_serializing_if = "FurtherFindings::is_empty")]
    pub more: FurtherFindings,
}

/// The numbers of findings that are not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct FurtherFindings {
    /// Documents that are not taken.
    pub refused: usize,
    /// Warnings.
    pub warned: usize,
    /// Documents that are no Kubernetes objects.
    pub skipped: usize,
    /// Objects of kinds that are not read.
    pub ignored: usize,
}

impl FurtherFindings {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Findings of each sort that a source keeps: a file of a gigabyte may have millions, each of them shown, compared and sorted.
pub const MOST_FINDINGS: usize = 10_000;

impl Findings {
    /// Lets go of those beyond the bound.
    pub fn bound(&mut self) {
        self.more.refused += cut(&mut self.refused);
        self.more.warned += cut(&mut self.warned);
        self.more.skipped += cut(&mut self.skipped);
        self.more.ignored += cut(&mut self.ignored);
    }

    /// The number of documents that are not taken.
    #[must_use]
    pub fn count_refused(&self) -> usize {
        self.refused.len() + self.more.refused
    }
}

fn cut<T>(findings: &mut Vec<T>) -> usize {
    let more = findings.len().saturating_sub(MOST_FINDINGS);
    findings.truncate(MOST_FINDINGS);
    more
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        at(f, &self.file, self.line, self.column)?;
        object(f, &self.kind, &self.namespace, &self.name)?;
        write!(f, "refused: {}", self.reason)
    }
}

impl std::fmt::Display for Warned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        at(f, &self.file, self.line, self.column)?;
        object(f, &self.kind, &self.namespace, &self.name)?;
        write!(f, "warning: {}", self.warning)
    }
}

/// `file:line:column: `, as far as it is known: the form that editors and CI logs link.
fn at(f: &mut std::fmt::Formatter<'_>, file: &str, line: u32, column: u32) -> std::fmt::Result {
    write!(f, "{file}")?;
    for number in [line, column].into_iter().filter(|n| *n > 0) {
        write!(f, ":{number}")?;
    }
    write!(f, ": ")
}

/// `Kind namespace/name `, as far as it is known.
fn object(f: &mut std::fmt::Formatter<'_>, kind: &str, namespace: &str, name: &str) -> std::fmt::Result {
    if !kind.is_empty() {
        write!(f, "{kind} ")?;
    }
    if name.is_empty() {
        return Ok(());
    }
    let slash = if namespace.is_empty() { "" } else { "/" };
    write!(f, "{namespace}{slash}{name} ")
}
