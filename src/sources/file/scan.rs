//! A folder to the files in it: recursive, through symbolic links, once each.
//!
//! Kubernetes mounts a ConfigMap as `file -> ..data/file` with `..data -> ..2024_…`; names that begin with `..` are entered
//! through links only. A link that leads back to a folder on its own path is not followed again.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Folders nested deeper than this are not entered.
const MAX_DEPTH: usize = 64;
/// A file that changed this recently before it was read may have changed again within the clock's grain.
const RACY: Duration = Duration::from_secs(2);

/// What the file system says of a file without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Length in bytes.
    pub len: u64,
    device: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stat {
    fn of(meta: &fs::Metadata) -> Self {
        Self {
            len: meta.len(),
            device: meta.dev(),
            inode: meta.ino(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    /// Whether a file with this stat, read now, can be trusted to be unchanged while the stat stays the same.
    #[must_use]
    pub fn settled(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        i64::try_from(now).unwrap_or(i64::MAX) - self.changed.0.max(self.modified.0) > RACY.as_secs() as i64
    }
}

/// Whether a folder could be listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// It was.
    Listed,
    /// It is not there.
    Gone,
    /// It is there and cannot be read.
    Unreadable(String),
}

/// The files of a folder.
#[derive(Debug)]
pub struct Listing {
    /// Whether the folder itself could be read.
    pub root: Root,
    /// Config files by path below the root.
    pub files: BTreeMap<PathBuf, Stat>,
    /// Real folders to watch.
    pub watch: BTreeSet<PathBuf>,
    /// Folders and files that could not be looked at, with the reason. What is below them is not known to be gone.
    pub failures: Vec<(PathBuf, String)>,
    /// Symbolic links lie on the way to some file: real paths do not say which files they are.
    pub linked: bool,
}

/// Lists the config files below a folder. `skip` are files that hold something else (mesh settings). A root that is a file
/// is listed as itself.
#[must_use]
pub fn scan(root: &Path, skip: &[PathBuf]) -> Listing {
    let mut walk = Walk {
        skip: skip.iter().filter_map(|p| fs::canonicalize(p).ok()).collect(),
        seen: HashSet::new(),
        above: Vec::new(),
        listing: Listing {
            root: Root::Listed,
            files: BTreeMap::new(),
            watch: BTreeSet::new(),
            failures: Vec::new(),
            linked: false,
        },
    };
    match fs::metadata(root) {
        Ok(meta) if meta.is_dir() => walk.folder(root),
        Ok(meta) => {
            walk.listing.files.insert(root.to_path_buf(), Stat::of(&meta));
            walk.watch_parent(root);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => walk.listing.root = Root::Gone,
        Err(error) => walk.listing.root = Root::Unreadable(error.to_string()),
    }
    if let Some((_, reason)) = walk.listing.failures.iter().find(|(p, _)| p == root) {
        walk.listing.root = Root::Unreadable(reason.clone());
    }
    walk.listing
}

struct Walk {
    skip: BTreeSet<PathBuf>,
    seen: HashSet<(u64, u64)>,
    above: Vec<(u64, u64)>,
    listing: Listing,
}

impl Walk {
    fn folder(&mut self, path: &Path) {
        let id = match fs::metadata(path) {
            Ok(meta) => (meta.dev(), meta.ino()),
            Err(error) => return self.failure(path, &error),
        };
        if self.above.contains(&id) || self.above.len() >= MAX_DEPTH {
            return;
        }
        let entries = fs::read_dir(path).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.failure(path, &error),
        };
        if let Ok(real) = fs::canonicalize(path) {
            self.listing.watch.insert(real);
        }
        entries.sort_by_key(fs::DirEntry::file_name);
        self.above.push(id);
        for entry in entries {
            if !entry.file_name().as_encoded_bytes().starts_with(b"..") {
                self.entry(&entry.path());
            }
        }
        self.above.pop();
    }

    fn entry(&mut self, path: &Path) {
        let named_like_config = is_config_name(path);
        let meta = match fs::metadata(path) {
            Ok(meta) => meta,
            Err(error) => {
                // A dangling link is a lock file of an editor or a swap under way; another error hides a config file.
                if named_like_config {
                    self.failure(path, &error);
                }
                return;
            }
        };
        let linked = fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink());
        if meta.is_dir() {
            self.listing.linked |= linked;
            return self.folder(path);
        }
        if !named_like_config || !meta.is_file() {
            return;
        }
        self.listing.linked |= linked;
        if linked || !self.skip.is_empty() {
            let Ok(real) = fs::canonicalize(path) else { return };
            if self.skip.contains(&real) {
                return;
            }
            if linked {
                self.watch_parent(&real);
            }
        }
        let stat = Stat::of(&meta);
        if !linked || self.seen.insert((stat.device, stat.inode)) {
            self.listing.files.insert(path.to_path_buf(), stat);
        }
    }

    fn watch_parent(&mut self, path: &Path) {
        if let Some(parent) = path.parent().and_then(|p| fs::canonicalize(p).ok()) {
            self.listing.watch.insert(parent);
        }
    }

    fn failure(&mut self, path: &Path, error: &io::Error) {
        if error.kind() != io::ErrorKind::NotFound {
            self.listing.failures.push((path.to_path_buf(), error.to_string()));
        }
    }
}

/// Whether the name is that of a config file.
#[must_use]
pub fn is_config_name(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json")
}

/// Why a file's text cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is gone.
    #[error("the file is gone")]
    Gone,
    /// It is longer than allowed.
    #[error("the file is longer than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: u64,
    },
    /// It is not UTF-8.
    #[error("byte {offset} is not UTF-8")]
    NotText {
        /// Line of the byte, from 1.
        line: u32,
        /// Offset of the byte, from 0.
        offset: usize,
    },
    /// The system says no.
    #[error("{0}")]
    Io(io::Error),
}

/// Reads a file that is at most `limit` bytes long.
///
/// # Errors
/// [`ReadError`].
pub fn read(path: &Path, limit: u64) -> Result<(String, Stat), ReadError> {
    let failed = |e: io::Error| if e.kind() == io::ErrorKind::NotFound { ReadError::Gone } else { ReadError::Io(e) };
    let file = File::open(path).map_err(failed)?;
    let stat = Stat::of(&file.metadata().map_err(failed)?);
    if stat.len > limit {
        return Err(ReadError::TooLong { limit });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(stat.len).unwrap_or(0));
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        return Err(ReadError::TooLong { limit });
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        let offset = e.utf8_error().valid_up_to();
        let lines = e.as_bytes().iter().take(offset).filter(|b| **b == b'\n').count();
        ReadError::NotText { line: u32::try_from(lines + 1).unwrap_or(u32::MAX), offset }
    })?;
    Ok((text, stat))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(root: &Path) -> Vec<String> {
        let listing = scan(root, &[]);
        listing.files.keys().map(|p| p.strip_prefix(root).unwrap().display().to_string()).collect()
    }

    #[test]
    fn folders_are_walked_and_other_names_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        for name in ["x.yaml", "a/y.yml", "a/b/z.json", "a/notes.txt", "a/.y.yml.swp"] {
            fs::write(dir.path().join(name), "a: 1").unwrap();
        }
        assert_eq!(names(dir.path()), ["a/b/z.json", "a/y.yml", "x.yaml"]);
        assert_eq!(scan(dir.path(), &[]).watch.len(), 3);
    }

    #[test]
    fn a_config_map_is_read_through_its_links_only() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("..1")).unwrap();
        fs::write(dir.path().join("..1/x.yaml"), "a: 1").unwrap();
        symlink("..1", dir.path().join("..data")).unwrap();
        symlink("..data/x.yaml", dir.path().join("x.yaml")).unwrap();
        assert_eq!(names(dir.path()), ["x.yaml"]);
        assert!(scan(dir.path(), &[]).watch.contains(&fs::canonicalize(dir.path().join("..1")).unwrap()));
    }

    #[test]
    fn loops_and_dangling_links_end() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        symlink("..", dir.path().join("a/up")).unwrap();
        symlink("nowhere", dir.path().join(".#x.yaml")).unwrap();
        fs::write(dir.path().join("a/x.yaml"), "a: 1").unwrap();
        symlink("a/x.yaml", dir.path().join("y.yaml")).unwrap();
        symlink("a/x.yaml", dir.path().join("z.yaml")).unwrap();
        assert_eq!(names(dir.path()), ["a/x.yaml", "y.yaml"]);
        assert!(scan(dir.path(), &[]).failures.is_empty());
    }

    #[test]
    fn a_link_to_itself_is_a_failure_and_no_absence() {
        let dir = tempfile::tempdir().unwrap();
        symlink("x.yaml", dir.path().join("x.yaml")).unwrap();
        assert_eq!(scan(dir.path(), &[]).failures.len(), 1);
    }

    #[test]
    fn length_and_encoding_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.yaml");
        fs::write(&path, b"a: 1\nb: \xff\n").unwrap();
        assert!(matches!(read(&path, 100), Err(ReadError::NotText { line: 2, offset: 8 })));
        assert!(matches!(read(&path, 5), Err(ReadError::TooLong { limit: 5 })));
        assert!(matches!(read(&dir.path().join("y"), 5), Err(ReadError::Gone)));
    }
}
