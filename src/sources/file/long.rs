//! Long files that changed, parsed one at a time on a thread of their own, so that the other files of the folder do not
//! wait for them.
//!
//! A file waits by name: its text is read when its turn comes, and one text is in memory at a time. A newer text of the
//! file that is being parsed waits for its turn, so that a file that changes all the time comes into force all the same.

use std::{
    collections::BTreeMap,
    panic::resume_unwind,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};

use tokio::sync::{
    Notify,
    oneshot::{self, error::TryRecvError},
};

use super::parse::{Document, FileText, parse_files};
use crate::{
    model::Origin,
    runtime::{Panicked, catch},
};

/// Texts that are longer than this are long.
const LONG: usize = 1 << 20;

/// Whether a text is too long to be parsed while others wait.
#[must_use]
pub const fn is_long(text: &str) -> bool {
    text.len() > LONG
}

/// The long files of a folder that are not parsed yet.
#[derive(Debug, Default)]
pub struct LongFiles {
    /// Since when each file waits.
    waiting: BTreeMap<Arc<PathBuf>, Instant>,
    parse: Option<Parse>,
    finished: Arc<Notify>,
}

/// A parse under way.
#[derive(Debug)]
struct Parse {
    path: Arc<PathBuf>,
    since: Instant,
    documents: oneshot::Receiver<Result<Vec<Document>, Panicked>>,
    stop: Arc<AtomicBool>,
}

impl Parse {
    fn is_wanted(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

impl Drop for Parse {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl LongFiles {
    /// Notified at the end of each parse.
    #[must_use]
    pub fn finished(&self) -> Arc<Notify> {
        self.finished.clone()
    }

    /// A file waits for its turn; its place in the queue is that of its oldest text that was not parsed.
    pub fn add(&mut self, path: Arc<PathBuf>, now: Instant) {
        self.waiting.entry(path).or_insert(now);
    }

    /// The file was removed, or is short now, or cannot be read: a parse of it has no use any more.
    pub fn remove(&mut self, path: &Arc<PathBuf>) {
        self.waiting.remove(path);
        if let Some(parse) = self.parse.as_ref().filter(|parse| parse.path == *path) {
            parse.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a text of this file waits to be parsed.
    #[must_use]
    pub fn is_waiting(&self, path: &Arc<PathBuf>) -> bool {
        self.waiting.contains_key(path)
    }

    /// The file whose turn it is among those that are ready, unless another one is being parsed.
    #[must_use]
    pub fn next(&self, is_ready: impl Fn(&Arc<PathBuf>) -> bool) -> Option<Arc<PathBuf>> {
        let ready = self.waiting.iter().filter(|(path, _)| self.parse.is_none() && is_ready(path));
        ready.min_by_key(|(_, since)| **since).map(|(path, _)| path.clone())
    }

    /// Starts to parse a text of a file that waits, unless another one is being parsed. `before`: its documents in force.
    pub fn start(&mut self, base: &Origin, path: &Arc<PathBuf>, text: String, before: Vec<Document>) {
        if self.parse.is_some() {
            return;
        }
        let Some(since) = self.waiting.remove(path) else { return };
        let (result, documents) = oneshot::channel();
        let stop = Arc::<AtomicBool>::default();
        let (base, file, stopped, finished) = (base.clone(), path.clone(), stop.clone(), self.finished.clone());
        tracing::debug!(path = %path.display(), bytes = text.len(), "a long file is parsed, other files do not wait");
        let started = thread::Builder::new().name("parse".to_string()).spawn(move || {
            let parsed = catch(|| {
                let text = FileText { path: file, text: &text, before: &before };
                parse_files(&base, &[text], &stopped).pop().unwrap_or_default()
            });
            // The folder may be gone.
            let _ = result.send(parsed);
            finished.notify_one();
        });
        if let Err(error) = started {
            resume_unwind(Box::new(format!("no thread for parsing: {error}")));
        }
        self.parse = Some(Parse { path: path.clone(), since, documents, stop });
    }

    /// The file whose parse has ended, with its documents.
    pub fn take(&mut self) -> Option<(Arc<PathBuf>, Vec<Document>)> {
        let ended = self.parse.as_mut()?.documents.try_recv();
        if matches!(ended, Err(TryRecvError::Empty)) {
            return None;
        }
        let parse = self.parse.take()?;
        match ended {
            _ if !parse.is_wanted() => None,
            Ok(Ok(documents)) => Some((parse.path.clone(), documents)),
            Ok(Err(panicked)) => resume_unwind(Box::new(panicked.0)),
            Err(_) => resume_unwind(Box::new("a parse ended early".to_string())),
        }
    }

    /// The files with a text that is not parsed yet.
    pub fn paths(&self) -> impl Iterator<Item = &Arc<PathBuf>> {
        let parsed = self.parse.iter().filter(|parse| parse.is_wanted()).map(|parse| &parse.path);
        parsed.filter(|path| !self.waiting.contains_key(*path)).chain(self.waiting.keys())
    }

    /// The time of the oldest text that is not parsed yet.
    #[must_use]
    pub fn since(&self) -> Option<Instant> {
        let parsed = self.parse.iter().filter(|parse| parse.is_wanted()).map(|parse| parse.since);
        self.waiting.values().copied().chain(parsed).min()
    }
}
