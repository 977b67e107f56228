//! The folder of the files: one for each source, written beside and renamed into place. Blocking.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use xxhash_rust::xxh3::xxh3_64;

use super::format::{FormatError, Saved, decode, encode, source_of};
use crate::model::Config;

/// Extension of the files.
const EXTENSION: &str = "last-good";

/// The reason that a file is neither written nor read.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The operating system refused the operation.
    #[error("{path}: {error}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The content is not in the format, or damaged.
    #[error("{path}: {error}")]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// The fault in the content.
        error: FormatError,
    },
    /// The file holds another source's content.
    #[error("{path}: holds the content of {found:?}")]
    OtherSource {
        /// Path of the file.
        path: PathBuf,
        /// The source named in the file.
        found: String,
    },
    /// A pipe, a folder or a device: reading it might never end.
    #[error("{0}: not a regular file")]
    NotAFile(PathBuf),
    /// The file is larger than allowed.
    #[error("{path}: {bytes} bytes are more than {limit}")]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Its size, or the size that it would have.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
}

/// A folder with one file per source.
#[derive(Debug, Clone)]
pub struct Folder {
    root: PathBuf,
    max_bytes: u64,
}

impl Folder {
    /// A folder, made if it is not there. Files of more than `max_bytes` are neither written nor read.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(root: &Path, max_bytes: u64) -> Result<Self, FolderError> {
        fs::create_dir_all(root).map_err(|error| FolderError::Io { path: root.to_path_buf(), error })?;
        Ok(Self { root: root.to_path_buf(), max_bytes })
    }

    /// The file of a source: the readable part of its name, and a hash that tells it from others.
    #[must_use]
    pub fn path(&self, source: &str) -> PathBuf {
        const READABLE: usize = 80;
        let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '_' };
        let readable: String = source.chars().take(READABLE).map(plain).collect();
        self.root.join(format!("{readable}-{:016x}.{EXTENSION}", xxh3_64(source.as_bytes())))
    }

    /// Writes the content of a source durably and as a whole, or not at all.
    ///
    /// # Errors
    /// [`FolderError`]; the previous file stays.
    pub fn save(&self, source: &str, configs: &[Arc<Config>]) -> Result<(), FolderError> {
        let path = self.path(source);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let bytes = encode(source, now, configs).map_err(|error| FolderError::Format { path: path.clone(), error })?;
        if bytes.len() as u64 > self.max_bytes {
            return Err(FolderError::TooLarge { path, bytes: bytes.len() as u64, limit: self.max_bytes });
        }
        let beside = path.with_extension("new");
        self.replace(&path, &beside, &bytes).map_err(|error| {
            let _ = fs::remove_file(&beside);
            FolderError::Io { path, error }
        })
    }

    fn replace(&self, path: &Path, beside: &Path, bytes: &[u8]) -> io::Result<()> {
        // Removed even if it is a pipe or a link, so that nothing is written through it.
        match fs::remove_file(beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(beside, path)?;
        // The rename is durable only once the folder is synced.
        File::open(&self.root)?.sync_all()
    }

    /// Reads the content of a source; `None` when there is none.
    ///
    /// # Errors
    /// [`FolderError`] for a file that exists and cannot be trusted. It is left where it is.
    pub fn load(&self, source: &str) -> Result<Option<Saved>, FolderError> {
        let path = self.path(source);
        let bytes = match self.read(&path) {
            Ok(bytes) => bytes,
            Err(FolderError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let saved = decode(&bytes).map_err(|error| FolderError::Format { path: path.clone(), error })?;
        if saved.source != source {
            return Err(FolderError::OtherSource { path, found: saved.source });
        }
        Ok(Some(saved))
    }

    /// Renames the unreadable file of a source, so that nothing overwrites it; returns its new path.
    ///
    /// # Errors
    /// When it cannot be renamed.
    pub fn put_aside(&self, source: &str) -> io::Result<PathBuf> {
        const COPIES: u32 = 9;
        let path = self.path(source);
        let copy = |number: u32| path.with_extension(format!("{EXTENSION}-damaged-{number}"));
        let free = (1..COPIES).map(copy).find(|copy| fs::symlink_metadata(copy).is_err());
        let aside = free.unwrap_or_else(|| copy(COPIES));
        fs::rename(&path, &aside)?;
        Ok(aside)
    }

    /// Sources that have a file, valid or not.
    #[must_use]
    pub fn sources(&self) -> Vec<String> {
        const HEAD: u64 = 4096;
        let head = |path: PathBuf| -> Option<Vec<u8>> {
            let mut bytes = Vec::new();
            fs::metadata(&path).ok()?.is_file().then_some(())?;
            File::open(path).ok()?.take(HEAD).read_to_end(&mut bytes).ok()?;
            Some(bytes)
        };
        let files = fs::read_dir(&self.root).into_iter().flatten().flatten().map(|entry| entry.path());
        let files = files.filter(|path| path.extension().is_some_and(|e| e == EXTENSION));
        let mut sources: Vec<String> = files.filter_map(|path| source_of(&head(path)?)).collect();
        sources.sort();
        sources
    }

    /// Removes the file of a source, if there is one.
    pub fn remove(&self, source: &str) {
        if let Err(error) = fs::remove_file(self.path(source))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(source, %error, "cannot remove the last good content of a removed source");
        }
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, FolderError> {
        let failed = |error| FolderError::Io { path: path.to_path_buf(), error };
        // Opening a pipe waits for a writer.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(FolderError::NotAFile(path.to_path_buf()));
        }
        let file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        if bytes > self.max_bytes {
            return Err(FolderError::TooLarge { path: path.to_path_buf(), bytes, limit: self.max_bytes });
        }
        let mut content = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
        file.take(self.max_bytes).read_to_end(&mut content).map_err(failed)?;
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{Origin, decode::from_value};

    fn entry(host: &str) -> Vec<Arc<Config>> {
        let document = json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
            "metadata": {"name": "a", "namespace": "shop"}, "spec": {"hosts": [host]}});
        vec![Arc::new(from_value(&document, Origin { source: "s:1".into(), ..Origin::default() }).unwrap())]
    }

    #[test]
    fn sources_have_files_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(&dir.path().join("state"), 1 << 20).unwrap();
        assert_eq!(folder.load("s:1").unwrap(), None);
        folder.save("s:1", &entry("a.example")).unwrap();
        folder.save("s/1", &[]).unwrap();
        folder.save("s:1", &entry("b.example")).unwrap();
        assert_eq!(folder.load("s:1").unwrap().unwrap().configs, entry("b.example"));
        assert_eq!(folder.load("s/1").unwrap().unwrap().configs, []);
        assert_eq!(fs::read_dir(dir.path().join("state")).unwrap().count(), 2, "nothing is left beside");
        assert_eq!(folder.sources(), ["s/1", "s:1"]);
        fs::copy(folder.path("s:1"), folder.path("s/1")).unwrap();
        assert!(matches!(folder.load("s/1"), Err(FolderError::OtherSource { .. })));
        folder.remove("s:1");
        assert_eq!(folder.load("s:1").unwrap(), None);
    }

    #[test]
    fn a_special_file_is_refused_and_put_aside() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path(), 1 << 20).unwrap();
        for number in 1..4 {
            let made = std::process::Command::new("mkfifo").arg(folder.path("s:1")).status().unwrap();
            assert!(made.success());
            assert!(matches!(folder.load("s:1"), Err(FolderError::NotAFile(_))));
            assert_eq!(folder.sources(), Vec::<String>::new());
            let aside = folder.put_aside("s:1").unwrap();
            assert!(aside.to_string_lossy().ends_with(&format!("last-good-damaged-{number}")), "{aside:?}");
            assert_eq!(folder.load("s:1").unwrap(), None);
        }
        let beside = folder.path("s:1").with_extension("new");
        assert!(std::process::Command::new("mkfifo").arg(beside).status().unwrap().success());
        folder.save("s:1", &entry("a.example")).unwrap();
        assert_eq!(folder.load("s:1").unwrap().unwrap().configs, entry("a.example"));
    }

    #[test]
    fn a_file_over_the_limit_is_neither_written_nor_read() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path(), 1 << 20).unwrap();
        folder.save("s:1", &entry("a.example")).unwrap();
        let small = Folder::open(dir.path(), 100).unwrap();
        assert!(matches!(small.load("s:1"), Err(FolderError::TooLarge { .. })));
        assert!(matches!(small.save("s:1", &entry("b.example")), Err(FolderError::TooLarge { .. })));
        assert_eq!(folder.load("s:1").unwrap().unwrap().configs, entry("a.example"));
    }
}
