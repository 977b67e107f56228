//! The bytes of a file: a line with the format, a line about the content, a line for each object.
//!
//! The second line holds the length and the hash of everything after it, so that a file is read whole or not at all.

use std::{path::PathBuf, sync::Arc};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_128;

use crate::model::{Config, Kind, Origin, decode::from_value, document};

const MAGIC: &str = "pilothouse-last-good ";
/// The format that is written and read.
const FORMAT: u32 = 1;

/// The reason that a file is not read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The file does not begin with the line of the format.
    #[error("not a file of last good content")]
    Stranger,
    /// The file was written by another version.
    #[error("format {0}, and this version reads format {FORMAT} only")]
    Format(String),
    /// The line about the content cannot be read.
    #[error("damaged: the line about the content: {0}")]
    Header(String),
    /// Bytes of the content are missing, or there are too many.
    #[error("damaged: {found} bytes of content instead of {want}")]
    Length {
        /// The number of bytes that the header declares.
        want: usize,
        /// The number of bytes in the file.
        found: usize,
    },
    /// The content does not match its checksum.
    #[error("damaged: the checksum does not fit")]
    Checksum,
    /// An object does not decode (any more).
    #[error("object {0}: {1}")]
    Object(usize, String),
    /// An object cannot be written.
    #[error("{0}")]
    Unwritable(String),
}

/// The header line: source, time, length and checksum of the content.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    source: String,
    saved_at: u64,
    objects: usize,
    bytes: usize,
    xxh3: String,
}

/// One object of the content.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    stamp: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    cluster: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "is_zero")]
    line: u32,
    object: Value,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_zero(line: &u32) -> bool {
    *line == 0
}

/// The saved content of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    /// Id of the source.
    pub source: String,
    /// Time of the save (Unix seconds).
    pub saved_at: u64,
    /// Objects of the source.
    pub configs: Vec<Arc<Config>>,
}

/// The bytes of a file with this content. Secrets are left out.
///
/// # Errors
/// [`FormatError::Unwritable`] for an object that has no form as a document.
pub fn encode(source: &str, saved_at: u64, configs: &[Arc<Config>]) -> Result<Vec<u8>, FormatError> {
    let (mut content, mut objects) = (Vec::new(), 0);
    for config in configs.iter().filter(|c| c.kind() != Kind::Secret) {
        let unwritable = |reason: String| FormatError::Unwritable(format!("{}: {reason}", config.key()));
        let record = Record {
            stamp: config.stamp,
            cluster: config.origin.cluster.to_string(),
            file: config.origin.file.as_deref().cloned(),
            line: config.origin.line,
            object: document(config).map_err(|e| unwritable(e.to_string()))?,
        };
        serde_json::to_writer(&mut content, &record).map_err(|e| unwritable(e.to_string()))?;
        content.push(b'\n');
        objects += 1;
    }
    let xxh3 = format!("{:032x}", xxh3_128(&content));
    let header = Header { source: source.to_string(), saved_at, objects, bytes: content.len(), xxh3 };
    let header = serde_json::to_string(&header).map_err(|e| FormatError::Unwritable(e.to_string()))?;
    let mut file = format!("{MAGIC}{FORMAT}\n{header}\n").into_bytes();
    file.append(&mut content);
    Ok(file)
}

/// Reads a file, whole or not at all.
///
/// # Errors
/// [`FormatError`] with the reason.
pub fn decode(file: &[u8]) -> Result<Saved, FormatError> {
    let rest = file.strip_prefix(MAGIC.as_bytes()).ok_or(FormatError::Stranger)?;
    let (format, rest) = line(rest).ok_or(FormatError::Stranger)?;
    let format = String::from_utf8_lossy(format.get(..format.len().min(20)).unwrap_or_default());
    if format.parse() != Ok(FORMAT) {
        return Err(FormatError::Format(format.into_owned()));
    }
    let (header, content) = line(rest).ok_or_else(|| FormatError::Header("it is cut off".to_string()))?;
    let header: Header = serde_json::from_slice(header).map_err(|e| FormatError::Header(e.to_string()))?;
    if content.len() != header.bytes {
        return Err(FormatError::Length { want: header.bytes, found: content.len() });
    }
    if format!("{:032x}", xxh3_128(content)) != header.xxh3 {
        return Err(FormatError::Checksum);
    }
    let lines: Vec<&[u8]> = content.split(|b| *b == b'\n').filter(|l| !l.is_empty()).collect();
    let configs = objects(&header.source, &lines)?;
    if configs.len() != header.objects {
        return Err(FormatError::Header(format!("{} objects instead of {}", configs.len(), header.objects)));
    }
    Ok(Saved { source: header.source, saved_at: header.saved_at, configs })
}

/// The source whose content a file holds, from the header alone; the content is not checked.
#[must_use]
pub fn source_of(head: &[u8]) -> Option<String> {
    let (_, rest) = line(head.strip_prefix(MAGIC.as_bytes())?)?;
    let (header, _) = line(rest)?;
    Some(serde_json::from_slice::<Header>(header).ok()?.source)
}

fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|b| *b == b'\n')?;
    Some((bytes.get(..end)?, bytes.get(end + 1..)?))
}

/// Decodes the objects, on all cores when there are many.
fn objects(source: &str, lines: &[&[u8]]) -> Result<Vec<Arc<Config>>, FormatError> {
    const WORTH_A_THREAD: usize = 256;
    let source: Arc<str> = source.into();
    let numbered = lines.par_iter().with_min_len(WORTH_A_THREAD).enumerate();
    let read = numbered.map(|(n, line)| object(&source, line).map_err(|e| FormatError::Object(n + 1, e)));
    // The error of the first object in the file is returned, whichever thread failed first.
    read.collect::<Vec<_>>().into_iter().collect()
}

fn object(source: &Arc<str>, line: &[u8]) -> Result<Arc<Config>, String> {
    let record: Record = serde_json::from_slice(line).map_err(|e| e.to_string())?;
    let origin = Origin {
        source: source.clone(),
        cluster: record.cluster.into(),
        file: record.file.map(Arc::new),
        line: record.line,
    };
    let mut config = from_value(&record.object, origin).map_err(|e| e.to_string())?;
    config.stamp = record.stamp;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn config(document: Value) -> Arc<Config> {
        let origin =
            Origin { source: "file:x".into(), file: Some(Arc::new("a.yaml".into())), line: 3, ..Origin::default() };
        Arc::new(from_value(&document, origin).unwrap())
    }

    fn entry(name: &str) -> Arc<Config> {
        config(json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "status": {"x": 1},
            "metadata": {"name": name, "namespace": "shop", "annotations": {"a": "line\nbreak"}, "generation": 4},
            "spec": {"hosts": [format!("{name}.example")]}}))
    }

    fn secret() -> Arc<Config> {
        config(json!({"apiVersion": "v1", "kind": "Secret", "data": {"key": "aHVzaA=="},
            "metadata": {"name": "s", "namespace": "shop"}}))
    }

    fn pod() -> Arc<Config> {
        config(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop"},
            "spec": {"containers": [{"name": "c"}]}, "status": {"podIP": "10.0.0.1"}}))
    }

    fn route() -> Arc<Config> {
        config(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": "r", "namespace": "shop"}, "spec": {"rules": []}}))
    }

    #[test]
    fn written_objects_are_read_and_secrets_are_not_written() {
        let file = encode("file:x", 7, &[entry("a"), secret(), pod(), route()]).unwrap();
        assert!(!String::from_utf8(file.clone()).unwrap().contains("aHVzaA"));
        let saved = decode(&file).unwrap();
        assert_eq!((saved.source.as_str(), saved.saved_at), ("file:x", 7));
        assert_eq!(saved.configs, [entry("a"), pod(), route()]);
    }

    #[test]
    fn thousands_of_objects_keep_their_order() {
        let many: Vec<_> = (0..3000).map(|n| entry(&format!("e{n}"))).collect();
        assert_eq!(decode(&encode("file:x", 1, &many).unwrap()).unwrap().configs, many);
    }

    #[test]
    fn other_formats_are_named() {
        let file = String::from_utf8(encode("file:x", 7, &[entry("a")]).unwrap()).unwrap();
        let older = file.replacen("last-good 1", "last-good 0", 1);
        let said = decode(older.as_bytes()).unwrap_err().to_string();
        assert_eq!(said, "format 0, and this version reads format 1 only");
        assert_eq!(decode(b"apiVersion: v1"), Err(FormatError::Stranger));
        let more = file.clone() + "{}\n";
        assert!(matches!(decode(more.as_bytes()), Err(FormatError::Length { .. })));
    }

    proptest! {
        #[test]
        fn a_file_with_any_byte_changed_or_cut_off_is_refused(at in any::<prop::sample::Index>(), bit in 0..8u32, cut: bool) {
            let file = encode("file:x", 7, &[entry("a"), entry("b")]).unwrap();
            let at = at.index(file.len());
            let mut damaged = file.clone();
            if cut { damaged.truncate(at) } else { damaged[at] ^= 1 << bit }
            // Two fields of the header are not content: the source and the time.
            let same_content = decode(&damaged).is_ok_and(|d| d.configs.len() == 2 && d.configs[0].stamp == entry("a").stamp);
            let header_end = file.iter().enumerate().filter(|(_, b)| **b == b'\n').nth(1).map_or(0, |(n, _)| n);
            prop_assert!(decode(&damaged).is_err() || (!cut && at < header_end && same_content));
        }
    }
}
