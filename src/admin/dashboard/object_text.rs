//! The text of an object: of its file where it is from one, else as it would be written.
//!
//! Secrets are only shown as they would be written, with their data blanked; of a file only the one document is shown, and only
//! while it is that object.

use std::{fs::File, io::Read, path::Path};

use serde_json::{Value, json};

use crate::{
    admin::document::shown,
    model::{Config, Kind},
    sources::yaml::{self, Chunk, Outline},
};

/// Longest file that is read, and longest text that is shown.
const MOST_BYTES: u64 = 1 << 20;
/// Words that a document that cannot be read must not hold to be shown.
const SECRET_WORDS: [&str; 3] = ["secret", "stringdata", "privatekey"];

/// A text with the number of its first line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectText {
    pub(super) text: String,
    /// Number of the first line in the file, from 1.
    pub(super) first: u32,
    /// Whether it is the text of the file.
    pub(super) of_file: bool,
}

impl ObjectText {
    /// The text of an object.
    pub(super) fn of(config: &Config) -> Self {
        let of_file = config.origin.file.as_ref().filter(|_| config.kind() != Kind::Secret);
        let written = of_file.and_then(|file| read(file)).and_then(|text| of_document(&text, config));
        written.unwrap_or_else(|| {
            let text = yaml::text_of(&shown(config)).unwrap_or_else(|error| format!("# {error}\n"));
            Self { text, first: 1, of_file: false }
        })
    }

    /// The text of a document that is refused, where nothing in it looks like a secret.
    pub(super) fn of_refused(file: &str, line: u32) -> Option<Self> {
        let text = read(Path::new(file))?;
        let chunk = chunk_at(&text, line)?;
        let lower = chunk.text.to_lowercase();
        let is_secret = SECRET_WORDS.iter().any(|word| lower.contains(word));
        (!is_secret).then(|| Self { text: chunk.text.to_string(), first: chunk.line, of_file: true })
    }

    /// The line of a field, as the text is numbered.
    pub(super) fn line_of(&self, path: &str) -> Option<u32> {
        let place = Outline::of(&self.text)?.place_of(path)?;
        Some(self.first + place.line.saturating_sub(1))
    }

    pub(super) fn shown(&self) -> Value {
        json!({"text": self.text, "first": self.first, "ofFile": self.of_file})
    }
}

fn read(file: &Path) -> Option<String> {
    let mut text = String::new();
    let file = File::open(file).ok()?;
    let is_small = file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MOST_BYTES);
    is_small.then_some(())?;
    file.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

fn chunk_at(text: &str, line: u32) -> Option<Chunk<'_>> {
    yaml::documents(text).into_iter().rfind(|chunk| chunk.line <= line.max(1))
}

/// The document of the object, if the file still has it there, alone in its document.
fn of_document(text: &str, config: &Config) -> Option<ObjectText> {
    let chunk = chunk_at(text, config.origin.line)?;
    let values = yaml::values(chunk.text).ok()?;
    let [document] = values.as_slice() else { return None };
    let is_it = document["kind"] == config.kind().as_str() && document["metadata"]["name"] == *config.meta.name;
    is_it.then(|| ObjectText { text: chunk.text.to_string(), first: chunk.line, of_file: true })
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, sync::Arc};

    use super::*;
    use crate::model::{Origin, decode};

    fn object(file: &Path, line: u32, document: Value) -> Config {
        let origin = Origin { file: Some(Arc::new(PathBuf::from(file))), line, ..Origin::default() };
        decode::from_value(&document, origin).unwrap()
    }

    #[test]
    fn the_text_is_that_of_the_document_and_never_that_of_a_secret() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.yaml");
        let text = "# first\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: hush}\n---\n\
                    apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata:\n  name: g\nspec:\n  servers:\n  - hosts: [a]\n";
        std::fs::write(&file, text).unwrap();
        let gateway =
            json!({"apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": {"name": "g"}, "spec": {}});
        let shown = ObjectText::of(&object(&file, 7, gateway.clone()));
        assert!(shown.of_file && !shown.text.contains("hush"), "{shown:?}");
        assert_eq!(shown.line_of("spec.servers[0].hosts"), Some(13));
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "hush"}});
        let shown = ObjectText::of(&object(&file, 2, secret));
        assert!(!shown.of_file && !shown.text.contains("hush"), "{shown:?}");
        assert_eq!(ObjectText::of_refused(file.to_str().unwrap(), 3), None);
        assert!(ObjectText::of_refused(file.to_str().unwrap(), 12).is_some_and(|text| text.first == 7));
        // The place holds a Secret by now.
        let moved = ObjectText::of(&object(&file, 2, gateway));
        assert!(!moved.of_file && !moved.text.contains("hush"), "{moved:?}");
        assert_eq!(ObjectText::of_refused("/dev/zero", 1), None);
    }

    #[test]
    fn an_object_without_a_file_is_shown_as_it_would_be_written() {
        let gateway = json!({"apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": {"name": "g"},
            "spec": {"servers": [{"hosts": ["a"]}]}});
        let config = decode::from_value(&gateway, Origin::default()).unwrap();
        let shown = ObjectText::of(&config);
        assert!(!shown.of_file && shown.text.contains("kind: Gateway"));
        let line = shown.line_of("spec.servers[0].hosts").unwrap();
        assert!(shown.text.lines().nth(line as usize - 1).is_some_and(|line| line.contains("hosts")), "{shown:?}");
    }
}
