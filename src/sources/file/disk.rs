//! File system calls with a deadline.
//!
//! A path of a dead network mount may never answer. The call is made on a thread of its own; when it makes no progress for
//! a while, the thread is left behind, the path is passed over until the thread returns, and the other paths go on. At most
//! [`MOST_STUCK`] threads of one folder are left behind: after that the folder as a whole is passed over.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    panic::resume_unwind,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::{
    progress::{Progress, is_below},
    read::{ReadError, Stat, read},
    scan::{Listing, Request, scan},
};
use crate::runtime::catch;

/// A call that takes longer is left behind.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most threads that are left behind at once.
const MOST_STUCK: usize = 8;
/// Bytes of files that are read before they are used.
const AT_ONCE: usize = 64 << 20;
/// After this many paths of one folder that do not answer, the folder is passed over.
const MOST_SIBLINGS: usize = 2;

/// Whether symbolic links are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// They are; a listing has checked their targets.
    Yes,
    /// They are reported as no files.
    No,
}

/// The text of a file as it was read, or why it cannot be had.
pub type Read = (Arc<PathBuf>, Result<(String, Stat), ReadError>);

/// The paths that do not answer, and the way to make calls that may not.
#[derive(Debug, Clone)]
pub struct Disk {
    stuck: Arc<Mutex<BTreeMap<PathBuf, usize>>>,
    answered: Arc<Notify>,
    patience: Duration,
}

impl Default for Disk {
    fn default() -> Self {
        Self { stuck: Arc::default(), answered: Arc::default(), patience: PATIENCE }
    }
}

impl Disk {
    /// Waits until a path that was passed over has answered.
    pub async fn answered(&self) {
        self.answered.notified().await;
    }

    /// Lists the config files below a folder ([`scan`]).
    #[must_use]
    pub fn list(&self, request: &Request) -> Listing {
        loop {
            let request = Request { avoid: self.passed_over(), ..request.clone() };
            let root = request.root.clone();
            match self.run(move |progress| scan(&request, progress)) {
                Ok(listing) => return listing,
                Err(path) if path == *root => return Listing::unreadable("it does not answer"),
                Err(_) => {}
            }
        }
    }

    /// Reads files in order, at least one and at most about [`AT_ONCE`] bytes, and takes them from those that are left.
    /// The result of a file that does not answer is [`ReadError::NoAnswer`].
    #[must_use]
    pub fn read(&self, left: &mut Vec<Arc<PathBuf>>, follow: Follow, limit: u64) -> Vec<Read> {
        let mut done: Vec<Read> = Vec::new();
        while done.is_empty() && !left.is_empty() {
            let avoid = self.passed_over();
            let (results, came) = mpsc::channel();
            let todo = left.clone();
            // The path that the thread is stuck at is passed over in the next round.
            let _ = self.run(move |progress| {
                let mut bytes = 0;
                for path in todo {
                    let result = match () {
                        () if is_below(&avoid, &path) => Err(ReadError::NoAnswer),
                        () if !progress.at(&path) => return,
                        () if follow == Follow::No && is_link(&path) => Err(ReadError::NoFile),
                        () => read(&path, limit, progress),
                    };
                    bytes += result.as_ref().map_or(0, |(text, _)| text.len());
                    if results.send((path, result)).is_err() || bytes >= AT_ONCE {
                        return;
                    }
                }
            });
            done.extend(came.try_iter());
            left.drain(..done.len());
        }
        done
    }

    /// The paths that are passed over now.
    fn passed_over(&self) -> BTreeSet<PathBuf> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, usize>> {
        self.stuck.lock()
    }

    /// Does work on a thread of its own. The error is the path that is passed over from now on.
    fn run<T: Send + 'static>(&self, work: impl FnOnce(&Progress) -> T + Send + 'static) -> Result<T, PathBuf> {
        let progress = Arc::new(Progress::new());
        let (result, came) = mpsc::sync_channel(1);
        let (theirs, disk) = (progress.clone(), self.clone());
        let started = thread::Builder::new().name("files".to_string()).spawn(move || {
            let done = catch(|| work(&theirs));
            if theirs.step().abandoned {
                disk.release(&theirs.step().path);
            }
            // The result of a thread that was left behind is not received.
            let _ = result.send(done);
        });
        if let Err(error) = started {
            resume_unwind(Box::new(format!("no thread for reading files: {error}")));
        }
        loop {
            let left = self.patience.saturating_sub(progress.step().since.elapsed());
            match came.recv_timeout(left) {
                Ok(Ok(result)) => return Ok(result),
                Ok(Err(panicked)) => resume_unwind(Box::new(panicked.0)),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    resume_unwind(Box::new("a thread ended early".to_string()))
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let mut step = progress.step();
                    if step.since.elapsed() >= self.patience {
                        step.abandoned = true;
                        let passed_over = self.pass_over(&step.path);
                        step.path.clone_from(&passed_over);
                        return Err(passed_over);
                    }
                }
            }
        }
    }

    /// Passes a path over; several of one folder become that folder, and too many become the top of all.
    fn pass_over(&self, path: &Path) -> PathBuf {
        let mut stuck = self.lock();
        let siblings = stuck.keys().filter(|p| p.parent() == path.parent()).count();
        let mut path = path.to_path_buf();
        if siblings >= MOST_SIBLINGS
            && let Some(parent) = path.parent()
        {
            path = parent.to_path_buf();
        }
        if stuck.values().sum::<usize>() >= MOST_STUCK {
            path = PathBuf::from("/");
        }
        tracing::warn!(path = %path.display(), "the file system does not answer; the path is passed over until it does");
        *stuck.entry(path.clone()).or_default() += 1;
        path
    }

    fn release(&self, path: &Path) {
        let mut stuck = self.lock();
        if let Some(threads) = stuck.get_mut(path) {
            *threads -= 1;
            if *threads == 0 {
                stuck.remove(path);
                tracing::info!(path = %path.display(), "the file system answers again");
            }
        }
        drop(stuck);
        self.answered.notify_one();
    }
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Disk {
        Disk { patience: Duration::from_millis(50), ..Disk::default() }
    }

    #[tokio::test]
    async fn a_path_that_does_not_answer_is_passed_over_until_it_does() {
        let disk = disk();
        let (go, wait) = mpsc::channel::<()>();
        let stuck = disk.run(move |progress| {
            progress.at(Path::new("/dead/x"));
            let _ = wait.recv();
        });
        assert_eq!(stuck, Err("/dead/x".into()));
        assert!(is_below(&disk.passed_over(), Path::new("/dead/x/y")));
        let told = disk.read(&mut vec![Arc::new("/dead/x/y".into()), Arc::new("/no/such".into())], Follow::No, 10);
        assert!(matches!(told[0].1, Err(ReadError::NoAnswer)) && matches!(told[1].1, Err(ReadError::Gone)));
        drop(go);
        tokio::time::timeout(Duration::from_secs(60), disk.answered()).await.unwrap();
        assert!(disk.passed_over().is_empty());
    }

    #[test]
    fn threads_that_are_left_behind_are_bounded() {
        let disk = disk();
        let (go, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let stuck = |path: String| {
            let wait = wait.clone();
            disk.run(move |progress| {
                progress.at(Path::new(&path));
                let _ = wait.lock().recv();
            })
        };
        assert_eq!(stuck("/a/1".into()), Err("/a/1".into()));
        assert_eq!(stuck("/a/2".into()), Err("/a/2".into()));
        assert_eq!(stuck("/a/3".into()), Err("/a".into()));
        for n in 3..MOST_STUCK {
            assert_eq!(stuck(format!("/{n}/x")), Err(format!("/{n}/x").into()));
        }
        assert_eq!(stuck("/z/x".into()), Err("/".into()));
        assert!(is_below(&disk.passed_over(), Path::new("/anything")));
        let listing = disk.list(&Request::of(Path::new("/tmp")));
        assert!(listing.files.is_empty());
        drop(go);
    }
}
