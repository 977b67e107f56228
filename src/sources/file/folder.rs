//! One folder kept up to date: scans, reads what changed, commits. Blocking; called off the async threads.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use xxhash_rust::xxh3::xxh3_64;

use super::{
    hold::MassDeletionGuard,
    load::line_of,
    parse::{Document, FileText, parse_files},
    scan::{ReadError, Root, Stat, read, scan},
    settle::Work,
    tree::{InForce, Tree},
};
use crate::{model::Origin, settings::SourceSettings, sources::Change};

/// A file that was read.
#[derive(Debug, Clone, Copy)]
struct Seen {
    hash: u64,
    stat: Stat,
    /// The stat had settled when the file was read: the same stat means the same content.
    trusted: bool,
}

/// One folder.
#[derive(Debug)]
pub struct Folder {
    base: Origin,
    root: PathBuf,
    skip: Vec<PathBuf>,
    max_file_bytes: u64,
    seen: HashMap<Arc<PathBuf>, Seen>,
    tree: Tree,
    real_root: Option<PathBuf>,
    watch: BTreeSet<PathBuf>,
    linked: bool,
    trouble: Option<String>,
    /// The last scan could not list the folder itself.
    out_of_reach: bool,
}

/// What a look at the folder brought.
#[derive(Debug)]
pub struct Look {
    /// What changed in the objects in force.
    pub change: Change,
    /// Some document changed, even if no object in force did.
    pub documents_changed: bool,
}

impl Folder {
    /// A folder that has not been looked at. `base` is the origin of what it holds; `in_force` is what an earlier run had
    /// published.
    #[must_use]
    pub fn new(
        base: Origin,
        root: PathBuf,
        skip: Vec<PathBuf>,
        settings: &SourceSettings,
        in_force: Arc<InForce>,
    ) -> Self {
        Self {
            base,
            root,
            skip,
            max_file_bytes: settings.max_file_bytes,
            seen: HashMap::new(),
            tree: Tree::new(MassDeletionGuard::new(settings.deletion_hold), in_force),
            real_root: None,
            watch: BTreeSet::new(),
            linked: false,
            trouble: None,
            out_of_reach: false,
        }
    }

    /// Looks at what may have changed and brings the objects in force up to date.
    pub fn look(&mut self, work: &Work) -> Look {
        let documents_changed = match work {
            Work::Paths(paths) => match self.logical(paths) {
                Some(paths) => self.look_at(paths),
                None => self.look_around(),
            },
            Work::Everything => self.look_around(),
        };
        Look { change: self.tree.commit(Instant::now()), documents_changed }
    }

    /// The paths as the scan spells them; `None` when links or trouble make a whole scan safer.
    fn logical(&self, paths: &[PathBuf]) -> Option<Vec<Arc<PathBuf>>> {
        let real_root = self.real_root.as_ref().filter(|_| !self.linked && self.trouble.is_none())?;
        paths
            .iter()
            .map(|p| {
                let plain = fs::symlink_metadata(p).map_or(true, |m| m.is_file());
                let skipped = self.skip.iter().any(|s| s.file_name() == p.file_name());
                let inside = p.strip_prefix(real_root).ok().filter(|_| plain && !skipped)?;
                Some(Arc::new(self.root.join(inside)))
            })
            .collect()
    }

    fn look_at(&mut self, paths: Vec<Arc<PathBuf>>) -> bool {
        let mut texts = Vec::new();
        let mut changed = false;
        for path in paths {
            changed |= self.take_up(path, &mut texts);
        }
        self.parse(texts) | changed
    }

    fn look_around(&mut self) -> bool {
        let listing = scan(&self.root, &self.skip);
        let was = self.trouble.take();
        self.out_of_reach = listing.root != Root::Listed;
        self.trouble = match &listing.root {
            Root::Listed => listing.failures.first().map(|(p, e)| format!("{}: {e}", p.display())),
            Root::Gone => Some(format!("{} is gone; its last content stays", self.root.display())),
            Root::Unreadable(error) => Some(format!("{}: {error}; its last content stays", self.root.display())),
        };
        self.real_root = fs::canonicalize(&self.root).ok();
        self.linked = listing.linked;
        self.watch = listing.watch;
        if self.watch.is_empty() {
            // The folder will come back below the nearest one that is there.
            self.watch.extend(self.root.ancestors().skip(1).find_map(|p| fs::canonicalize(or_here(p)).ok()));
        }
        self.tree.set_complete(self.trouble.is_none());
        let known: BTreeSet<Arc<PathBuf>> = self.tree.paths().cloned().collect();
        let mut changed = was != self.trouble;
        if listing.root == Root::Listed {
            for path in known.iter().filter(|p| !listing.files.contains_key(p.as_ref())) {
                if !listing.failures.iter().any(|(f, _)| path.starts_with(f)) {
                    self.forget(path);
                    changed = true;
                }
            }
        }
        for (path, reason) in listing.failures.iter().filter(|(p, _)| known.contains(p)) {
            self.tree.fail(&Arc::new(path.clone()), 0, reason.clone());
            self.seen.remove(path);
        }
        let mut texts = Vec::new();
        for path in self.unsure(listing.files) {
            changed |= self.take_up(path, &mut texts);
        }
        self.parse(texts) | changed
    }

    /// The files whose stat does not prove that they are what they were.
    fn unsure(&self, files: BTreeMap<PathBuf, Stat>) -> Vec<Arc<PathBuf>> {
        let proven = |path: &PathBuf, stat: &Stat| self.seen.get(path).is_some_and(|s| s.trusted && s.stat == *stat);
        files.into_iter().filter(|(p, s)| !proven(p, s)).map(|(p, _)| Arc::new(p)).collect()
    }

    /// Reads a file; its text is noted for parsing when it is not what it was. True when something changed without a text.
    fn take_up(&mut self, path: Arc<PathBuf>, texts: &mut Vec<(Arc<PathBuf>, String)>) -> bool {
        match read(&path, self.max_file_bytes) {
            Ok((text, stat)) => {
                let hash = xxh3_64(text.as_bytes());
                let trusted = stat.settled();
                let before = self.seen.insert(path.clone(), Seen { hash, stat, trusted });
                if before.is_none_or(|b| b.hash != hash) {
                    texts.push((path, text));
                }
                false
            }
            Err(ReadError::Gone) => {
                let known = self.tree.paths().any(|p| *p == path);
                self.forget(&path);
                known
            }
            Err(error) => {
                self.seen.remove(&path);
                self.tree.fail(&path, line_of(&error), format!("{error}; its last content stays"));
                true
            }
        }
    }

    fn forget(&mut self, path: &Arc<PathBuf>) {
        self.seen.remove(path);
        self.tree.remove(path);
    }

    fn parse(&mut self, texts: Vec<(Arc<PathBuf>, String)>) -> bool {
        let files: Vec<FileText<'_>> = texts
            .iter()
            .map(|(path, text)| FileText { path: path.clone(), text, before: self.tree.documents(path) })
            .collect();
        let parsed: Vec<Vec<Document>> = parse_files(&self.base, &files);
        drop(files);
        for ((path, _), documents) in texts.iter().zip(parsed) {
            self.tree.replace(path, documents);
        }
        !texts.is_empty()
    }

    /// The documents and the objects in force.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Lets a held deletion through at the next look.
    pub fn confirm(&mut self) {
        self.tree.confirm();
    }

    /// Real folders to watch.
    #[must_use]
    pub fn watch(&self) -> &BTreeSet<PathBuf> {
        &self.watch
    }

    /// The folder itself could not be listed when it was last looked at: it is gone, or may not be read.
    #[must_use]
    pub const fn is_out_of_reach(&self) -> bool {
        self.out_of_reach
    }

    /// Why the content may be stale.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}

/// A relative path's empty parent is the current folder.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}
