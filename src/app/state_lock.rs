//! The right to write to the state folder: one process has it. In a handover it moves when the process before has written all
//! that it had to and ended; until then the new one reads, and saves nothing.

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use crate::settings::StateSettings;

/// The lock of another process is looked at in this interval.
const LOOK: Duration = Duration::from_millis(100);

/// The lock of a state folder. Dropping all copies gives it back, as the end of the process does.
#[derive(Debug, Clone)]
pub(super) struct StateLock {
    /// `None` where the folder cannot be opened: the state of a disk keeps no process from serving.
    file: Option<Arc<File>>,
    path: PathBuf,
}

impl StateLock {
    /// The lock of the folder, where one is configured; it is not taken yet.
    pub(super) fn of(settings: &StateSettings) -> Option<Self> {
        settings.folder.as_deref().map(Self::within)
    }

    fn within(path: &Path) -> Self {
        // The folder itself is locked: nothing is written for it.
        let opened = std::fs::create_dir_all(path).and_then(|()| File::open(path));
        let file = opened
            .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "the state folder is not locked"));
        Self { file: file.ok().map(Arc::new), path: path.to_path_buf() }
    }

    /// Waits until no other process has the lock. `Some` tells whether there was one; `None`, that `stop` came first.
    pub(super) async fn taken(&self, stop: &CancellationToken) -> Option<bool> {
        let Some(file) = &self.file else { return Some(false) };
        let mut waited = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Some(waited),
                Err(TryLockError::WouldBlock) if !waited => {
                    let path = self.path.display();
                    tracing::warn!(%path, "another process writes to the state folder; nothing is saved until it ends");
                }
                Err(TryLockError::WouldBlock) => {}
                // A file system without locks: one process is trusted to be the only one.
                Err(TryLockError::Error(error)) => {
                    tracing::warn!(path = %self.path.display(), %error, "the state folder cannot be locked");
                    return Some(waited);
                }
            }
            waited = true;
            if tokio::time::timeout(LOOK, stop.cancelled()).await.is_ok() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_holder_at_a_time_and_the_next_knows_that_it_waited() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (StateLock::within(folder.path()), StateLock::within(folder.path()));
        let stop = CancellationToken::new();
        assert_eq!(first.taken(&stop).await, Some(false));
        assert_eq!(first.clone().taken(&stop).await, Some(false), "it is the process that has it");
        let ended = CancellationToken::new();
        ended.cancel();
        assert_eq!(second.taken(&ended).await, None);
        let waits = tokio::spawn(async move { second.taken(&CancellationToken::new()).await });
        tokio::time::sleep(Duration::from_millis(150)).await;
        assert!(!waits.is_finished());
        drop(first);
        assert_eq!(waits.await.unwrap(), Some(true));
        let of_no_folder = StateLock::within(Path::new("/proc/none/state"));
        assert_eq!(of_no_folder.taken(&stop).await, Some(false), "nothing is waited for where nothing can be written");
    }
}
