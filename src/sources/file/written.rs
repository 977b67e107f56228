//! The objects of a file as they are written: documents with their places, those of kinds that are not read included.
//!
//! For `pilothouse analyze`, which names fields of objects that are sound by themselves.

use std::{cell::OnceCell, path::PathBuf, sync::Arc};

use serde_json::Value;

use super::{
    defaults::filled,
    parse::{DocumentText, list_items},
};
use crate::{
    model::{
        Config, Origin,
        decode::with_warnings,
        validation::{admission, validate},
    },
    runtime::catch,
    sources::yaml,
};

/// One object of a file.
#[derive(Debug, Clone)]
pub struct Written {
    /// The file.
    pub file: Arc<PathBuf>,
    /// The object.
    pub value: Value,
    /// The object by its kind; `None` for kinds that are not read, and for objects that do not fit their kind.
    pub config: Option<Arc<Config>>,
    /// Warnings of decoding and validation, each with the path of its field in front.
    pub warnings: Vec<String>,
    /// Line of the file on which its document begins, from 1.
    line: u32,
    /// Text of its document.
    text: Arc<str>,
    /// The entry of the document's list that it is.
    item: Option<usize>,
}

impl Written {
    /// Whether it is the object that begins at this line of a file.
    #[must_use]
    pub fn is_at(&self, file: &str, line: u32) -> bool {
        self.config.as_ref().is_some_and(|config| config.origin.line == line) && self.file.display().to_string() == file
    }

    /// Line and column of a field, both from 1, or of the nearest one around it; the column is 0 when it is unknown.
    #[must_use]
    pub fn place(&self, path: &str) -> (u32, u32) {
        let (line, column) = DocumentText { text: &self.text, outline: OnceCell::new() }.place(self.item, path);
        (self.line + line, column)
    }
}

/// The objects of one file. Documents that cannot be read have none.
pub(super) fn written(base: &Origin, file: &Arc<PathBuf>, text: &str) -> Vec<Written> {
    let mut found = Vec::new();
    for chunk in yaml::documents(text) {
        let text: Arc<str> = chunk.text.into();
        for document in yaml::values(chunk.text).unwrap_or_default() {
            let list = list_items(&document).cloned();
            let items: Vec<(Option<usize>, Value)> = match list {
                Some(items) => items.into_iter().enumerate().map(|(i, item)| (Some(i), item)).collect(),
                None => vec![(None, document)],
            };
            found.extend(items.into_iter().map(|(item, value)| {
                let written = Written {
                    file: file.clone(),
                    value,
                    config: None,
                    warnings: Vec::new(),
                    line: chunk.line,
                    text: text.clone(),
                    item,
                };
                decoded(base, written)
            }));
        }
    }
    found
}

/// The object with its kind's content, as far as it fits the kind. What validation refuses is there for references.
fn decoded(base: &Origin, mut written: Written) -> Written {
    let (line, _) = if written.item.is_some() { written.place("") } else { (written.line, 0) };
    let origin = Origin { file: Some(written.file.clone()), line, ..base.clone() };
    let read = catch(|| {
        let (mut config, mut warnings) = with_warnings(&filled(&written.value), origin).ok()?;
        if config.meta.name.is_empty() {
            return None;
        }
        if config.meta.namespace.is_empty() {
            config.meta.namespace = config.kind().namespace("").into();
        }
        warnings.extend(validate(&config).warnings);
        warnings.extend(admission(config.kind(), &written.value).warnings);
        Some((Arc::new(config), warnings))
    });
    if let Some((config, warnings)) = read.ok().flatten() {
        (written.config, written.warnings) = (Some(config), warnings);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_all_kinds_have_their_places() {
        let text = "# about\n---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: apps/v1\n  kind: Deployment\n  metadata: {name: a}\n\
                    - apiVersion: networking.istio.io/v1\n  kind: Gateway\n  metadata: {name: b}\n  spec:\n    servers:\n    - hosts: [x]\n";
        let found = written(&Origin::default(), &Arc::new("x.yaml".into()), text);
        assert_eq!(found.len(), 2);
        assert!(found[0].config.is_none() && found[0].value["kind"] == "Deployment");
        let gateway = found[1].config.as_ref().unwrap();
        assert_eq!((&*gateway.meta.namespace, gateway.origin.line), ("default", 9));
        assert_eq!(found[1].place("spec.servers[0].hosts[0]"), (14, 15));
        assert_eq!(found[1].place("spec.servers[0].port"), (14, 7));
        assert_eq!(found[0].place("metadata.name"), (8, 14));
    }
}
