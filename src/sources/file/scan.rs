//! A folder to the files in it: recursive, through symbolic links, once each.
//!
//! Kubernetes mounts a ConfigMap as `file -> ..data/file` with `..data -> ..2024_…`; names that begin with `..` are entered
//! through links only. A link is followed within the folder that the user named; each folder is entered once, by whichever
//! of its paths comes first. Depth and number of entries are bounded.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    progress::{Progress, is_below},
    read::{Stat, special},
};

/// Folders nested deeper than this are not entered.
const MAX_DEPTH: usize = 64;
/// A folder with more entries, in all, is not read to its end.
const MAX_ENTRIES: usize = 1_000_000;

/// The state of the folder itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// It was listed.
    Listed,
    /// It does not exist.
    Gone,
    /// It exists and cannot be read, with the reason.
    Unreadable(String),
}

/// A folder to list.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The folder, or a file that stands for itself.
    pub root: Arc<PathBuf>,
    /// Files that hold something else (mesh settings).
    pub skip: Vec<PathBuf>,
    /// Paths that do not answer.
    pub avoid: BTreeSet<PathBuf>,
    /// Real paths of files that were closed after writing.
    pub closed: Arc<BTreeSet<PathBuf>>,
}

impl Request {
    /// A request for a whole folder.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        Self { root: Arc::new(root.to_path_buf()), ..Self::default() }
    }
}

/// The files of a folder.
#[derive(Debug)]
pub struct Listing {
    /// Whether the folder itself could be read.
    pub root: Root,
    /// Config files by path below the root. Without an order: paths are dear to compare, and most lists are looked up in only.
    pub files: HashMap<PathBuf, Stat>,
    /// Real folders to watch, with device and inode.
    pub watch: BTreeMap<PathBuf, (u64, u64)>,
    /// Folders and files that could not be read, with the reason. Files below them are not known to be gone.
    pub failures: Vec<(PathBuf, String)>,
    /// Paths with the name of a config file that are not read, with the reason.
    pub refused: Vec<(PathBuf, String)>,
    /// Files whose name is nearly that of a config file, and which are not read.
    pub passed_over: Vec<PathBuf>,
    /// The files, as the listing spells them, that were closed after writing.
    pub closed: BTreeSet<PathBuf>,
    /// The real path of the folder.
    pub real_root: Option<PathBuf>,
    /// Symbolic links lie on the way to some file: real paths do not say which files they are.
    pub linked: bool,
}

impl Listing {
    fn empty() -> Self {
        Self {
            root: Root::Listed,
            files: HashMap::new(),
            watch: BTreeMap::new(),
            failures: Vec::new(),
            refused: Vec::new(),
            passed_over: Vec::new(),
            closed: BTreeSet::new(),
            real_root: None,
            linked: false,
        }
    }

    /// A folder that cannot be read.
    #[must_use]
    pub fn unreadable(reason: &str) -> Self {
        Self { root: Root::Unreadable(reason.to_string()), ..Self::empty() }
    }
}

/// Lists the config files below a folder. A root that is a file is listed as itself.
#[must_use]
pub fn scan(request: &Request, progress: &Progress) -> Listing {
    let root = request.root.as_path();
    if is_below(&request.avoid, root) {
        return Listing::unreadable("it does not answer");
    }
    progress.at(root);
    let mut walk = Walk {
        skip: request.skip.iter().filter_map(|p| fs::canonicalize(p).ok()).collect(),
        request,
        progress,
        files_seen: HashSet::new(),
        folders_seen: HashSet::new(),
        entries: 0,
        listing: Listing { real_root: fs::canonicalize(root).ok(), ..Listing::empty() },
    };
    match fs::metadata(root) {
        Ok(meta) if meta.is_dir() => walk.folder(root, 0),
        Ok(meta) if meta.is_file() => {
            walk.listing.files.insert(root.to_path_buf(), Stat::of(&meta));
            if let Some(real) = walk.listing.real_root.clone() {
                walk.closed(root, &real);
            }
            walk.watch_parent(root);
        }
        Ok(meta) => {
            let reason = format!("it is {}, not a folder or a regular file", special(meta.file_type()));
            walk.listing.root = Root::Unreadable(reason);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => walk.listing.root = Root::Gone,
        Err(error) => walk.listing.root = Root::Unreadable(error.to_string()),
    }
    if let Some((_, reason)) = walk.listing.failures.iter().find(|(p, _)| p == root) {
        walk.listing.root = Root::Unreadable(reason.clone());
    }
    if walk.listing.watch.is_empty() {
        // The folder will come back below the nearest one that is there.
        if let Some(near) = root.ancestors().skip(1).find_map(|p| fs::canonicalize(or_here(p)).ok()) {
            walk.watch(near);
        }
    }
    walk.listing
}

/// A relative path's empty parent is the current folder.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

struct Walk<'a> {
    request: &'a Request,
    progress: &'a Progress,
    skip: BTreeSet<PathBuf>,
    files_seen: HashSet<(u64, u64)>,
    folders_seen: HashSet<(u64, u64)>,
    entries: usize,
    listing: Listing,
}

impl Walk<'_> {
    fn folder(&mut self, path: &Path, depth: usize) {
        if depth >= MAX_DEPTH {
            return self.refuse(path, format!("nested deeper than {MAX_DEPTH} folders"));
        }
        let id = match fs::metadata(path) {
            Ok(meta) => (meta.dev(), meta.ino()),
            Err(error) => return self.failure(path, &error),
        };
        if !self.folders_seen.insert(id) {
            return;
        }
        let entries = fs::read_dir(path).and_then(|entries| entries.take(MAX_ENTRIES).collect::<Result<Vec<_>, _>>());
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.failure(path, &error),
        };
        let real = fs::canonicalize(path).ok();
        if let Some(real) = &real {
            self.listing.watch.insert(real.clone(), id);
        }
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            if self.entries == MAX_ENTRIES {
                let reason = format!("there are more than {MAX_ENTRIES} entries below the config folder");
                return self.listing.failures.push((path.to_path_buf(), reason));
            }
            self.entries += 1;
            if !entry.file_name().as_encoded_bytes().starts_with(b"..") && !self.entry(&entry, real.as_deref(), depth) {
                return;
            }
        }
    }

    /// Looks at one entry of a folder; false when the walk is to end.
    fn entry(&mut self, entry: &fs::DirEntry, folder: Option<&Path>, depth: usize) -> bool {
        let path = entry.path();
        if !self.progress.at(&path) {
            return false;
        }
        if is_below(&self.request.avoid, &path) {
            self.listing.failures.push((path, "it does not answer".to_string()));
            return true;
        }
        let linked = entry.file_type().is_ok_and(|t| t.is_symlink());
        let real = if linked { fs::canonicalize(&path).ok() } else { folder.map(|f| f.join(entry.file_name())) };
        if linked && self.leads_out(&path, real.as_deref()) {
            return true;
        }
        let named_like_config = is_config_name(&path);
        let meta = match fs::metadata(&path) {
            Ok(meta) => meta,
            Err(error) => {
                // A dangling link is a lock file of an editor or a swap under way; another error hides a config file.
                if named_like_config {
                    self.failure(&path, &error);
                }
                return true;
            }
        };
        if meta.is_dir() {
            self.listing.linked |= linked;
            self.folder(&path, depth + 1);
        } else if named_like_config {
            self.file(path, &meta, real, linked);
        } else if meta.is_file() && is_nearly_config_name(&path) {
            self.listing.passed_over.push(path);
        }
        true
    }

    fn file(&mut self, path: PathBuf, meta: &fs::Metadata, real: Option<PathBuf>, linked: bool) {
        if !meta.is_file() {
            let reason = format!("it is {}, not a regular file", special(meta.file_type()));
            return self.refuse(&path, reason);
        }
        self.listing.linked |= linked;
        let Some(real) = real.filter(|real| !self.skip.contains(real)) else { return };
        if linked {
            self.watch_parent(&real);
        }
        let stat = Stat::of(meta);
        if !linked || self.files_seen.insert(stat.id()) {
            self.closed(&path, &real);
            self.listing.files.insert(path, stat);
        }
    }

    /// Whether a link leads out of the folder that the user named; it is refused by name then, if it may matter.
    fn leads_out(&mut self, path: &Path, real: Option<&Path>) -> bool {
        let (Some(real), Some(root)) = (real, self.listing.real_root.as_deref()) else { return false };
        if real.starts_with(root) || self.skip.contains(real) {
            return false;
        }
        let reason =
            format!("the link leads out of {}; name its target as a config folder", self.request.root.display());
        if is_config_name(path) || real.is_dir() {
            self.refuse(path, reason);
        }
        true
    }

    fn closed(&mut self, path: &Path, real: &Path) {
        if self.request.closed.contains(real) {
            self.listing.closed.insert(path.to_path_buf());
        }
    }

    fn watch_parent(&mut self, path: &Path) {
        if let Some(parent) = path.parent().and_then(|p| fs::canonicalize(or_here(p)).ok()) {
            self.watch(parent);
        }
    }

    fn watch(&mut self, folder: PathBuf) {
        if !self.listing.watch.contains_key(&folder)
            && let Ok(meta) = fs::metadata(&folder)
        {
            self.listing.watch.insert(folder, (meta.dev(), meta.ino()));
        }
    }

    fn failure(&mut self, path: &Path, error: &io::Error) {
        if error.kind() != io::ErrorKind::NotFound {
            self.listing.failures.push((path.to_path_buf(), error.to_string()));
        }
    }

    fn refuse(&mut self, path: &Path, reason: String) {
        self.listing.refused.push((path.to_path_buf(), reason));
    }
}

/// Whether the name is that of a config file.
#[must_use]
pub fn is_config_name(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json")
}

/// Whether the name is that of a config file but for upper case.
fn is_nearly_config_name(path: &Path) -> bool {
    path.extension().is_some_and(|e| ["yaml", "yml", "json"].iter().any(|known| e.eq_ignore_ascii_case(known)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use super::*;

    fn look(root: &Path) -> Listing {
        scan(&Request::of(root), &Progress::new())
    }

    fn names(root: &Path) -> Vec<String> {
        let mut files: Vec<PathBuf> = look(root).files.into_keys().collect();
        files.sort();
        files.iter().map(|p| p.strip_prefix(root).unwrap().display().to_string()).collect()
    }

    #[test]
    fn folders_are_walked_and_other_names_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        for name in ["x.yaml", "a/y.yml", "a/b/z.json", "a/notes.txt", "a/.y.yml.swp", "a/Z.YAML"] {
            fs::write(dir.path().join(name), "a: 1").unwrap();
        }
        assert_eq!(names(dir.path()), ["a/b/z.json", "a/y.yml", "x.yaml"]);
        assert_eq!(look(dir.path()).watch.len(), 3);
        assert_eq!(look(dir.path()).passed_over, [dir.path().join("a/Z.YAML")]);
    }

    #[test]
    fn a_config_map_is_read_through_its_links_only() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("..1")).unwrap();
        fs::write(dir.path().join("..1/x.yaml"), "a: 1").unwrap();
        symlink("..1", dir.path().join("..data")).unwrap();
        symlink("..data/x.yaml", dir.path().join("x.yaml")).unwrap();
        assert_eq!(names(dir.path()), ["x.yaml"]);
        assert!(look(dir.path()).watch.contains_key(&fs::canonicalize(dir.path().join("..1")).unwrap()));
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
        assert!(look(dir.path()).failures.is_empty());
    }

    #[test]
    fn folders_that_link_to_each_other_are_entered_once_each() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..40 {
            fs::create_dir(dir.path().join(format!("d{n:02}"))).unwrap();
        }
        for n in 0..39 {
            for link in ["x", "y", "z"] {
                symlink(format!("../d{:02}", n + 1), dir.path().join(format!("d{n:02}/{link}"))).unwrap();
            }
        }
        fs::write(dir.path().join("d39/x.yaml"), "a: 1").unwrap();
        assert_eq!(names(dir.path()).len(), 1, "three to the power of forty paths lead to the file");
    }

    #[test]
    fn links_stay_within_the_folder_and_special_files_are_named() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(other.path().join("x.yaml"), "a: 1").unwrap();
        symlink(other.path().join("x.yaml"), dir.path().join("x.yaml")).unwrap();
        symlink("/", dir.path().join("everything")).unwrap();
        let _socket = UnixListener::bind(dir.path().join("s.yaml")).unwrap();
        let listing = look(dir.path());
        assert!(listing.files.is_empty() && listing.failures.is_empty(), "{listing:?}");
        let refused: Vec<String> = listing.refused.iter().map(|(p, r)| format!("{} {r}", p.display())).collect();
        assert_eq!(refused.len(), 3, "{refused:?}");
        assert!(refused[0].contains("everything the link leads out of"), "{refused:?}");
        assert!(refused[1].contains("s.yaml it is a socket, not a regular file"), "{refused:?}");
    }

    #[test]
    fn a_link_to_itself_is_a_failure_and_no_absence() {
        let dir = tempfile::tempdir().unwrap();
        symlink("x.yaml", dir.path().join("x.yaml")).unwrap();
        assert_eq!(look(dir.path()).failures.len(), 1);
    }
}
