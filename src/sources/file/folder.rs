//! One folder kept up to date: lists, reads what changed, commits. Blocking; called off the async threads.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use xxhash_rust::xxh3::xxh3_64;

use super::{
    disk::{Disk, Follow, Read},
    parse::{Document, FileText, is_blank, parse_files},
    read::{ReadError, Stat},
    refusal::line_of,
    scan::{Listing, Request, Root, is_below},
    settle::Work,
    tree::{InForce, Tree},
    writing::Writing,
};
use crate::{
    model::Origin,
    settings::SourceSettings,
    sources::{Change, MassDeletionGuard},
};

/// Deletions of files within this span are judged together.
const DELETION_WINDOW: Duration = Duration::from_secs(600);

/// Texts that are longer than this are parsed after the others, one at each look.
const LONG_TEXT: usize = 1 << 20;
/// A long text waits this long at most while other files change.
const LONG_WAIT: Duration = Duration::from_secs(1);

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
    root: Arc<PathBuf>,
    skip: Vec<PathBuf>,
    max_file_bytes: u64,
    disk: Disk,
    seen: HashMap<Arc<PathBuf>, Seen>,
    writing: Writing,
    /// Long texts that are not parsed yet, with the time since when each file has waited.
    backlog: BTreeMap<Arc<PathBuf>, (Instant, String)>,
    /// It has been looked at once.
    known: bool,
    tree: Tree,
    real_root: Option<PathBuf>,
    watch: BTreeMap<PathBuf, (u64, u64)>,
    linked: bool,
    trouble: Option<String>,
    /// The last listing could not read the folder itself.
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
        let guard = MassDeletionGuard::new(settings.deletion_hold).over(DELETION_WINDOW);
        Self {
            base,
            root: Arc::new(root),
            skip,
            max_file_bytes: settings.max_file_bytes,
            disk: Disk::default(),
            seen: HashMap::new(),
            writing: Writing::default(),
            backlog: BTreeMap::new(),
            known: false,
            tree: Tree::new(guard, in_force),
            real_root: None,
            watch: BTreeMap::new(),
            linked: false,
            trouble: None,
            out_of_reach: false,
        }
    }

    /// Makes its file system calls through `disk`.
    #[must_use]
    pub fn on(self, disk: Disk) -> Self {
        Self { disk, ..self }
    }

    /// Looks at what may have changed and brings the objects in force up to date.
    pub fn look(&mut self, work: &Work) -> Look {
        let now = Instant::now();
        let logical = if work.everything { None } else { self.logical(work) };
        let parsed = self.parse_long(work.everything || work.paths.is_empty(), now);
        let documents_changed = match logical {
            Some((mut paths, closed)) => {
                paths.extend(self.writing.due(now).cloned());
                self.take_up(paths.into_iter().collect(), Follow::No, &closed, now)
            }
            None => self.look_around(&work.closed, now),
        };
        self.known = true;
        // What moved from a short file to a long one is not gone.
        self.tree.set_partial(!self.backlog.is_empty());
        Look { change: self.tree.commit(now), documents_changed: documents_changed | parsed }
    }

    /// Parses the long text that has waited longest, when nothing happened to other files or it has waited long enough.
    fn parse_long(&mut self, is_idle: bool, now: Instant) -> bool {
        let oldest = self.backlog.iter().min_by_key(|(_, (since, _))| *since);
        let due = oldest.filter(|(_, (since, _))| is_idle || now.saturating_duration_since(*since) >= LONG_WAIT);
        let Some(path) = due.map(|(path, _)| path.clone()) else { return false };
        let text = self.backlog.remove(&path).map(|(_, text)| (path, text));
        text.is_some_and(|text| self.parse(vec![text]))
    }

    /// Puts the long ones among these texts off, and gives the others.
    fn put_off(&mut self, texts: Vec<(Arc<PathBuf>, String)>, now: Instant) -> Vec<(Arc<PathBuf>, String)> {
        let mut short = Vec::new();
        for (path, text) in texts {
            // A newer text of a file takes the place of the one that waits.
            let since = self.backlog.remove(&path).map_or(now, |(since, _)| since);
            if text.len() > LONG_TEXT {
                self.backlog.insert(path, (since, text));
            } else {
                short.push((path, text));
            }
        }
        short
    }

    /// The paths, and those among them that were closed, as the listing spells them; `None` when links or a folder that is
    /// out of reach make a whole listing safer.
    fn logical(&self, work: &Work) -> Option<(BTreeSet<Arc<PathBuf>>, BTreeSet<PathBuf>)> {
        if work.paths.is_empty() {
            return Some(Default::default());
        }
        let real_root = self.real_root.as_ref().filter(|_| !self.linked && !self.out_of_reach)?;
        let (mut paths, mut closed) = (BTreeSet::new(), BTreeSet::new());
        for path in &work.paths {
            let skipped = self.skip.iter().any(|s| s.file_name() == path.file_name());
            let inside = path.strip_prefix(real_root).ok().filter(|_| !skipped)?;
            let logical = self.root.join(inside);
            if work.closed.contains(path) {
                closed.insert(logical.clone());
            }
            paths.insert(Arc::new(logical));
        }
        Some((paths, closed))
    }

    fn look_around(&mut self, closed: &BTreeSet<PathBuf>, now: Instant) -> bool {
        let (root, skip) = (self.root.clone(), self.skip.clone());
        let request = Request { root, skip, closed: Arc::new(closed.clone()), ..Request::default() };
        let listing = self.disk.list(&request);
        let was = self.trouble.take();
        self.out_of_reach = listing.root != Root::Listed;
        self.trouble = match &listing.root {
            Root::Listed => listing.failures.first().map(|(p, e)| format!("{}: {e}", p.display())),
            Root::Gone => Some(format!("{} is gone; its last content stays", self.root.display())),
            Root::Unreadable(error) => Some(format!("{}: {error}; its last content stays", self.root.display())),
        };
        self.real_root.clone_from(&listing.real_root);
        self.linked = listing.linked;
        let unknown = if self.out_of_reach { vec![(*self.root).clone()] } else { failed(&listing) };
        self.tree.set_unknown(unknown);
        let mut changed = was != self.trouble;
        changed |= self.tree.set_notes(notes(&self.root, &listing));
        changed |= self.forget_what_is_gone(&listing);
        for (path, reason) in listing.failures.iter().chain(&listing.refused) {
            let path = Arc::new(path.clone());
            self.seen.remove(&path);
            changed |= self.tree.fail(&path, 0, reason.clone());
        }
        self.watch = listing.watch;
        let unsure = self.unsure(listing.files);
        self.take_up(unsure, Follow::Yes, &listing.closed, now) | changed
    }

    fn forget_what_is_gone(&mut self, listing: &Listing) -> bool {
        if listing.root != Root::Listed {
            return false;
        }
        let named = |list: &[(PathBuf, String)]| list.iter().map(|(p, _)| p.clone()).collect::<BTreeSet<PathBuf>>();
        let (refused, failed) = (named(&listing.refused), named(&listing.failures));
        let there =
            |path: &PathBuf| listing.files.contains_key(path) || refused.contains(path) || is_below(&failed, path);
        let gone: Vec<Arc<PathBuf>> = self.tree.paths().filter(|p| !there(p)).cloned().collect();
        gone.iter().for_each(|path| self.forget(path));
        !gone.is_empty()
    }

    /// The files whose stat does not prove that they are what they were.
    fn unsure(&self, files: BTreeMap<PathBuf, Stat>) -> Vec<Arc<PathBuf>> {
        let proven = |path: &PathBuf, stat: &Stat| self.seen.get(path).is_some_and(|s| s.trusted && s.stat == *stat);
        files.into_iter().filter(|(p, s)| !proven(p, s)).map(|(p, _)| Arc::new(p)).collect()
    }

    /// Reads files, and parses those that are not what they were. True when some document changed.
    fn take_up(&mut self, paths: Vec<Arc<PathBuf>>, follow: Follow, closed: &BTreeSet<PathBuf>, now: Instant) -> bool {
        if paths.is_empty() {
            return false;
        }
        let (mut texts, mut changed, mut other) = (Vec::new(), false, false);
        for (path, result) in self.disk.read(paths, follow, self.max_file_bytes) {
            other |= matches!(result, Err(ReadError::NoFile));
            let is_closed = closed.contains(path.as_path());
            changed |= self.judge((path, result), is_closed, now, &mut texts);
        }
        if self.known {
            texts = self.put_off(texts, now);
        }
        let changed = self.parse(texts) | changed;
        if other && follow == Follow::No {
            // A folder or a link has the name of a file: the listing says what it stands for.
            return self.look_around(&BTreeSet::new(), now) | changed;
        }
        changed
    }

    /// Notes what was read of a file, or why it could not be read; its text is kept for parsing when it is not what it was.
    /// True when something changed without a text.
    fn judge(
        &mut self,
        (path, result): Read,
        closed: bool,
        now: Instant,
        texts: &mut Vec<(Arc<PathBuf>, String)>,
    ) -> bool {
        match result {
            Ok((text, stat)) => {
                let hash = xxh3_64(text.as_bytes());
                let before = self.seen.get(&path);
                let in_place = before.is_some_and(|b| b.hash != hash && b.stat.id() == stat.id());
                if in_place && !closed && self.writing.goes_on(&path, stat, is_blank(&text), now) {
                    return false;
                }
                self.writing.end(&path);
                let before = self.seen.insert(path.clone(), Seen { hash, stat, trusted: stat.settled() });
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
            Err(ReadError::NoFile) => false,
            Err(error) => {
                self.seen.remove(&path);
                if matches!(error, ReadError::NoAnswer) {
                    self.trouble = Some(format!("{}: {error}", path.display()));
                }
                self.tree.fail(&path, line_of(&error), format!("{error}; its last content stays"))
            }
        }
    }

    fn forget(&mut self, path: &Arc<PathBuf>) {
        self.seen.remove(path);
        self.writing.end(path);
        self.backlog.remove(path);
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

    /// Real folders to watch, with device and inode.
    #[must_use]
    pub fn watch(&self) -> &BTreeMap<PathBuf, (u64, u64)> {
        &self.watch
    }

    /// When it is to be looked at again because of time alone: a deletion is held, a file is being written, or a
    /// long one waits to be parsed.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let backlog = (!self.backlog.is_empty()).then(Instant::now);
        self.tree.held_until().into_iter().chain(self.writing.next_due()).chain(backlog).min()
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

fn failed(listing: &Listing) -> Vec<PathBuf> {
    listing.failures.iter().map(|(path, _)| path.clone()).collect()
}

/// What a person should know of the names in a folder: path and warning.
pub(super) fn notes(root: &Path, listing: &Listing) -> Vec<(PathBuf, String)> {
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
