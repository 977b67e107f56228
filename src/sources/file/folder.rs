//! One folder kept up to date: lists it, reads changed files, commits their objects. Blocking; called off the async
//! threads.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    backlog::{Backlog, Waiting},
    disk::{Disk, Follow, Read},
    findings::{line_of, notes},
    long::{LongFiles, is_long},
    parse::{Document, FileText, is_blank, parse_files},
    progress::is_below,
    read::{ReadError, Stat},
    scan::{Listing, Request, Root},
    settle::Work,
    tree::{InForce, Tree},
    writing::Writing,
};
use crate::{
    model::{Config, Origin},
    settings::SourceSettings,
    sources::{Change, Findings, MassDeletionGuard},
};

/// Deletions of files within this span are judged together.
const DELETION_WINDOW: Duration = Duration::from_secs(600);
/// Files and new objects of one look at a known folder, and the part of all that may be more than that.
const STEP: (usize, usize) = (1000, 50);
/// The time after which a file is read again whose reading may have failed for want of a descriptor.
const RETRY: Duration = Duration::from_millis(500);

/// A file that was read.
#[derive(Debug, Clone, Copy)]
struct Seen {
    hash: u64,
    stat: Stat,
    /// The stat had settled when the file was read: the same stat means the same content.
    trusted: bool,
}

/// A folder: the files that were read, the documents in them, and the objects in force.
#[derive(Debug)]
pub struct Folder {
    base: Origin,
    root: Arc<PathBuf>,
    skip: Vec<PathBuf>,
    max_file_bytes: u64,
    disk: Disk,
    seen: HashMap<Arc<PathBuf>, Seen>,
    writing: Writing,
    /// Files that could not be read for a reason that may pass, with the time of the next attempt.
    retries: BTreeMap<Arc<PathBuf>, Instant>,
    /// Files of the last listing that are still to be read.
    backlog: Backlog,
    /// Long files that changed since the folder was read.
    long: LongFiles,
    /// The folder was read once: all of its files, long ones too.
    known: bool,
    tree: Tree,
    real_root: Option<PathBuf>,
    watch: BTreeMap<PathBuf, (u64, u64)>,
    linked: bool,
    trouble: Option<String>,
    /// The last listing could not read the folder itself.
    out_of_reach: bool,
    /// The time that listings took in this look.
    listing: Duration,
    /// Files that were looked at since a listing beside these looks began; `None` where there is none.
    touched: Option<HashSet<Arc<PathBuf>>>,
    /// The last look at single files has not read on in the last listing's.
    has_passed: bool,
}

/// The result of a look at the folder.
#[derive(Debug)]
pub struct Look {
    /// The change of the objects in force.
    pub change: Change,
    /// The time that listings of the folder took.
    pub listing: Duration,
}

impl Folder {
    /// A folder that has not been looked at. `base` is the origin of its objects; `in_force` are the objects that an earlier
    /// run had published.
    #[must_use]
    pub fn new(base: Origin, root: PathBuf, skip: Vec<PathBuf>, settings: &SourceSettings, in_force: InForce) -> Self {
        let guard = MassDeletionGuard::new(settings.deletion_hold).over(DELETION_WINDOW);
        Self {
            base,
            root: Arc::new(root),
            skip,
            max_file_bytes: settings.max_file_bytes,
            disk: Disk::default(),
            seen: HashMap::new(),
            writing: Writing::default(),
            retries: BTreeMap::new(),
            backlog: Backlog::default(),
            long: LongFiles::default(),
            known: false,
            tree: Tree::new(guard, in_force),
            real_root: None,
            watch: BTreeMap::new(),
            linked: false,
            trouble: None,
            out_of_reach: false,
            listing: Duration::ZERO,
            touched: None,
            has_passed: false,
        }
    }

    /// Makes its file system calls through `disk`.
    #[must_use]
    pub fn on(self, disk: Disk) -> Self {
        Self { disk, ..self }
    }

    /// Looks at the paths that may have changed and brings the objects in force up to date.
    pub fn look(&mut self, work: &Work) -> Look {
        let now = Instant::now();
        self.listing = Duration::ZERO;
        let logical = if work.everything { None } else { self.logical(work) };
        self.take_parsed();
        // The last documents come into force first: those of single files, and of the files that changed last.
        match logical {
            Some((mut paths, closed)) => {
                // Single files wait for every second batch of the others at most.
                self.has_passed = !paths.is_empty() && !self.has_passed;
                if !self.has_passed {
                    self.read_on(now);
                }
                paths.extend(self.writing.due(now).cloned());
                paths.extend(self.retries.iter().filter(|(_, at)| **at <= now).map(|(path, _)| path.clone()));
                self.take_up(paths.into_iter().collect(), Follow::No, &closed, now);
            }
            None => {
                self.look_around(&work.closed, now);
                self.read_on(now);
            }
        }
        self.start_next(&work.closed, now);
        self.bring_into_force(now)
    }

    /// Whether the folder was read once.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.known
    }

    /// The request for a listing that is made beside looks at single files, and that [`Folder::take_listing`] takes.
    pub fn begin_listing(&mut self, closed: BTreeSet<PathBuf>) -> Request {
        self.touched = Some(HashSet::new());
        self.request(closed)
    }

    /// Takes the listing that was begun last. It is older than the looks since then: they say more about their files.
    pub fn take_listing(&mut self, listing: Listing) -> Look {
        let now = Instant::now();
        self.listing = Duration::ZERO;
        self.take_parsed();
        // A look at everything since then knows more about all files.
        if let Some(touched) = self.touched.take() {
            self.take_in(listing, &touched, now);
        }
        self.read_on(now);
        self.start_next(&BTreeSet::new(), now);
        self.bring_into_force(now)
    }

    fn bring_into_force(&mut self, now: Instant) -> Look {
        let most = self.most(self.tree.in_force().len());
        self.known |= !self.out_of_reach;
        // An object that moved to a file that is still to be read, or to be parsed, is not gone.
        self.tree.set_unparsed_since(self.backlog.since().into_iter().chain(self.long.since()).min());
        Look { change: self.tree.commit(most, now), listing: self.listing }
    }

    /// Files or objects of this look, where there are so many: all at the first look. A part of all, so that the cost of
    /// steps over everything stays in proportion.
    fn most(&self, all: usize) -> usize {
        if self.known { STEP.0.max(all / STEP.1) } else { usize::MAX }
    }

    /// Takes the documents of the long file whose parse has ended.
    fn take_parsed(&mut self) {
        if let Some((path, documents)) = self.long.take() {
            self.tree.replace(&path, documents);
        }
    }

    /// Reads files of the last listing.
    fn read_on(&mut self, now: Instant) {
        let batch = self.backlog.take(self.most(self.seen.len()));
        // A file of the listing may have become a link since, or may be written again.
        let follow = if self.known && !self.linked { Follow::No } else { Follow::Yes };
        let closed = batch.iter().filter(|file| file.is_closed && !self.writing.contains(&file.path));
        let closed = closed.map(|file| (*file.path).clone()).collect();
        self.take_up(batch.into_iter().rev().map(|file| file.path).collect(), follow, &closed, now);
    }

    /// Reads the long file whose turn it is, and starts to parse it.
    fn start_next(&mut self, closed: &BTreeSet<PathBuf>, now: Instant) {
        let Some(path) = self.long.next(|path| !self.writing.contains(path)) else { return };
        let follow = if self.linked { Follow::Yes } else { Follow::No };
        self.take_up(vec![path], follow, closed, now);
    }

    /// Puts the long ones among these texts aside, and gives the others. A long one whose turn it is is parsed from now on;
    /// the others are read again at their turn.
    fn put_aside(&mut self, texts: Vec<(Arc<PathBuf>, String)>, now: Instant) -> Vec<(Arc<PathBuf>, String)> {
        let mut short = Vec::new();
        for (path, text) in texts {
            if !is_long(&text) {
                self.long.remove(&path);
                short.push((path, text));
                continue;
            }
            self.long.add(path.clone(), now);
            if self.long.next(|path| !self.writing.contains(path)).as_ref() == Some(&path) {
                let before = self.tree.documents(&path).to_vec();
                self.long.start(&self.base, &path, text, before);
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

    fn request(&self, closed: BTreeSet<PathBuf>) -> Request {
        let (root, skip) = (self.root.clone(), self.skip.clone());
        Request { root, skip, closed: Arc::new(closed), ..Request::default() }
    }

    fn look_around(&mut self, closed: &BTreeSet<PathBuf>, now: Instant) {
        let began = Instant::now();
        self.touched = None;
        let listing = self.disk.list(&self.request(closed.clone()));
        self.take_in(listing, &HashSet::new(), now);
        self.listing += began.elapsed();
    }

    /// Takes a listing, except for the files that were touched since it began.
    fn take_in(&mut self, listing: Listing, touched: &HashSet<Arc<PathBuf>>, now: Instant) {
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
        self.tree.set_notes(notes(&self.root, &listing));
        self.forget_gone(&listing, touched);
        let failures = listing.failures.iter().chain(&listing.refused);
        for (path, reason) in failures.filter(|(path, _)| !touched.contains(path)) {
            let path = Arc::new(path.clone());
            self.seen.remove(&path);
            self.long.remove(&path);
            self.tree.fail(&path, 0, reason.clone());
        }
        self.watch = listing.watch;
        let unsure = self.unsure(listing.files, &listing.closed);
        self.backlog.set(unsure, now);
    }

    fn forget_gone(&mut self, listing: &Listing, touched: &HashSet<Arc<PathBuf>>) {
        if listing.root != Root::Listed {
            return;
        }
        let named = |list: &[(PathBuf, String)]| list.iter().map(|(p, _)| p.clone()).collect::<BTreeSet<PathBuf>>();
        let (refused, failed) = (named(&listing.refused), named(&listing.failures));
        let there =
            |path: &PathBuf| listing.files.contains_key(path) || refused.contains(path) || is_below(&failed, path);
        let known = self.tree.paths().chain(self.long.paths());
        let gone: Vec<Arc<PathBuf>> = known.filter(|p| !there(p) && !touched.contains(*p)).cloned().collect();
        gone.iter().for_each(|path| self.forget(path));
    }

    /// The files whose stat does not prove that their content is unchanged.
    fn unsure(&self, files: HashMap<PathBuf, Stat>, closed: &BTreeSet<PathBuf>) -> Vec<Waiting> {
        let unsure = |(path, stat): (PathBuf, Stat)| {
            let known = self.seen.get(&path).filter(|seen| seen.stat == stat);
            let (is_closed, is_known) = (closed.contains(&path), known.is_some());
            let is_proven = known.is_some_and(|seen| seen.trusted);
            (!is_proven).then(|| Waiting { path: Arc::new(path), stat, is_closed, is_known })
        };
        files.into_iter().filter_map(unsure).collect()
    }

    /// Reads files, and parses those with another content than before.
    fn take_up(&mut self, paths: Vec<Arc<PathBuf>>, follow: Follow, closed: &BTreeSet<PathBuf>, now: Instant) {
        if let Some(touched) = &mut self.touched {
            touched.extend(paths.iter().cloned());
        }
        let (mut left, mut other) = (paths, false);
        while !left.is_empty() {
            let mut texts = Vec::new();
            for (path, result) in self.disk.read(&mut left, follow, self.max_file_bytes) {
                other |= matches!(result, Err(ReadError::NoFile));
                let is_closed = closed.contains(path.as_path());
                texts.extend(self.judge((path, result), is_closed, now));
            }
            if self.known {
                texts = self.put_aside(texts, now);
            }
            self.parse(&texts);
        }
        if other && follow == Follow::No {
            // A folder or a link has the name of a file: the listing says which files it stands for.
            self.look_around(&BTreeSet::new(), now);
        }
    }

    /// Notes the content of a file, or the reason why it could not be read. Gives a text with another content than before.
    fn judge(&mut self, (path, result): Read, closed: bool, now: Instant) -> Option<(Arc<PathBuf>, String)> {
        self.retries.remove(&path);
        match result {
            Ok((text, stat)) => {
                let hash = xxh3_64(text.as_bytes());
                let before = self.seen.get(&path);
                let in_place = before.is_some_and(|b| b.hash != hash && b.stat.id() == stat.id());
                if in_place && !closed && self.writing.goes_on(&path, stat, is_blank(&text), now) {
                    return None;
                }
                self.writing.end(&path);
                let before = self.seen.insert(path.clone(), Seen { hash, stat, trusted: stat.settled() });
                let is_new = before.is_none_or(|b| b.hash != hash) || self.long.is_waiting(&path);
                return is_new.then_some((path, text));
            }
            Err(ReadError::Gone) => self.forget(&path),
            Err(ReadError::NoFile) => {}
            Err(error) => {
                self.seen.remove(&path);
                self.long.remove(&path);
                if error.may_pass() {
                    self.retries.insert(path.clone(), now + RETRY);
                }
                if matches!(error, ReadError::NoAnswer) {
                    self.trouble = Some(format!("{}: {error}", path.display()));
                }
                self.tree.fail(&path, line_of(&error), format!("{error}; its last content stays"));
            }
        }
        None
    }

    fn forget(&mut self, path: &Arc<PathBuf>) {
        self.retries.remove(path);
        self.seen.remove(path);
        self.writing.end(path);
        self.long.remove(path);
        self.tree.remove(path);
    }

    fn parse(&mut self, texts: &[(Arc<PathBuf>, String)]) {
        let files: Vec<FileText<'_>> = texts
            .iter()
            .map(|(path, text)| FileText { path: path.clone(), text, before: self.tree.documents(path) })
            .collect();
        let parsed: Vec<Vec<Document>> = parse_files(&self.base, &files, &AtomicBool::new(false));
        drop(files);
        for ((path, _), documents) in texts.iter().zip(parsed) {
            self.tree.replace(path, documents);
        }
    }

    /// Puts those objects of an earlier process in force whose document is refused, or whose file cannot be read.
    pub fn recall(&mut self, saved: Vec<Arc<Config>>) {
        self.tree.recall(saved, Instant::now());
    }

    /// The findings, if they may be others than the last time.
    pub fn take_findings(&mut self) -> Option<Findings> {
        self.tree.take_findings()
    }

    /// Files whose newest text is not read, or not parsed yet.
    pub fn unparsed(&self) -> impl Iterator<Item = &Arc<PathBuf>> {
        self.long.paths().chain(self.backlog.unread())
    }

    /// Notified when a long file was parsed: its documents are taken at the next look.
    #[must_use]
    pub fn parsed(&self) -> Arc<Notify> {
        self.long.finished()
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

    /// Whether files or objects are left for the next look.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        !self.backlog.is_empty() || self.tree.is_pending()
    }

    /// When it is to be looked at again without an event: a deletion is held, a file is being written or is to be tried
    /// again, or files and objects are left for the next look.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let left = self.is_behind().then(Instant::now);
        let of_files = self.writing.next_due().into_iter().chain(self.retries.values().copied().min());
        self.tree.held_until().into_iter().chain(of_files).chain(left).min()
    }

    /// Whether the last listing of the folder itself failed: it does not exist, or cannot be read.
    #[must_use]
    pub const fn is_out_of_reach(&self) -> bool {
        self.out_of_reach
    }

    /// The reason why the content may be stale.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}

fn failed(listing: &Listing) -> Vec<PathBuf> {
    listing.failures.iter().map(|(path, _)| path.clone()).collect()
}
