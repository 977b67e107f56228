//! Findings of a folder: the refusals and warnings of its documents, files and names.

use std::path::{Path, PathBuf};

use super::{
    parse::{Document, ObjectOutcome},
    read::ReadError,
    scan::{Listing, Root},
};
use crate::{
    model::{Config, Kind},
    sources::{Findings, Ignored, Refused, Warned},
};

/// Warnings about names in a folder, each with its path.
pub fn notes(root: &Path, listing: &Listing) -> Vec<(PathBuf, String)> {
    let upper = |path: &PathBuf| {
        let reason = "passed over: the name of a config file ends in .yaml, .yml or .json, in lower case";
        (path.clone(), reason.to_string())
    };
    let mut notes: Vec<(PathBuf, String)> = listing.passed_over.iter().map(upper).collect();
    let empty = listing.files.is_empty() && listing.refused.is_empty() && listing.failures.is_empty();
    if listing.root == Root::Listed && empty {
        notes.push((root.to_path_buf(), "the folder holds no config file (.yaml, .yml or .json)".to_string()));
    }
    notes
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

/// The warning for an object that another one hides.
pub fn shadowed(config: &Config, first: &Config) -> Warned {
    Warned { warning: shadowed_by(first), ..warned(config) }
}

fn shadowed_by(first: &Config) -> String {
    let file = first.origin.file.as_ref().map(|f| f.display().to_string()).unwrap_or_default();
    format!("has no effect: the same object is at {file}:{}", first.origin.line)
}

/// A warning about a path.
pub fn note(path: &Path, warning: &str) -> Warned {
    Warned {
        file: path.display().to_string(),
        line: 0,
        column: 0,
        kind: String::new(),
        namespace: String::new(),
        name: String::new(),
        warning: warning.to_string(),
    }
}

fn warned(config: &Config) -> Warned {
    Warned {
        file: config.origin.file.as_ref().map(|f| f.display().to_string()).unwrap_or_default(),
        line: config.origin.line,
        column: 0,
        kind: config.kind().to_string(),
        namespace: config.meta.namespace.to_string(),
        name: config.meta.name.to_string(),
        warning: String::new(),
    }
}

/// Adds the findings of the documents of one file.
pub fn findings_of(path: &Path, documents: &[Document], into: &mut Findings) {
    let file = path.display().to_string();
    for document in documents {
        for outcome in document.outcomes.iter() {
            match outcome {
                ObjectOutcome::Taken { config, warnings } => {
                    into.warned.extend(warnings.iter().map(|w| Warned {
                        line: document.line + w.line,
                        column: w.column,
                        warning: w.text.clone(),
                        ..warned(config)
                    }));
                }
                ObjectOutcome::Refused(r) => {
                    let refused = Refused {
                        file: file.clone(),
                        line: document.line + r.line,
                        column: r.column,
                        kind: r.identity.kind.clone(),
                        namespace: r.identity.namespace.clone(),
                        name: r.identity.name.clone(),
                        reason: r.reason.clone(),
                    };
                    if r.foreign { &mut into.skipped } else { &mut into.refused }.push(refused);
                }
                ObjectOutcome::Ignored { api_version, kind, name } => {
                    into.warned.extend(Kind::unknown_of_known_group(api_version, kind).map(|warning| Warned {
                        line: document.line,
                        kind: kind.to_string(),
                        name: name.to_string(),
                        ..note(path, &warning)
                    }));
                    into.ignored.push(Ignored {
                        file: file.clone(),
                        line: document.line,
                        api_version: api_version.to_string(),
                        kind: kind.to_string(),
                        name: name.to_string(),
                    });
                }
            }
        }
    }
}
