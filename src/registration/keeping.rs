//! Durability of entries. A workload that was answered as registered must be known after a restart: it is answered once its
//! entry is written.

use std::time::Duration;

use tokio::sync::watch;

/// Limit of a workload's wait for the disk. After it the workload is served all the same, and its entry is written later.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// Progress of writing entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Entries are not kept on disk.
    Unkept,
    /// All changes up to this number are written.
    Written(u64),
    /// The last write failed.
    Failing(u64),
}

/// Connects the workloads that wait for their entries to be written with the task that writes.
#[derive(Debug, Clone)]
pub struct Keeping {
    wanted: watch::Sender<u64>,
    progress: watch::Sender<Progress>,
}

impl Default for Keeping {
    fn default() -> Self {
        Self { wanted: watch::Sender::new(0), progress: watch::Sender::new(Progress::Unkept) }
    }
}

impl Keeping {
    /// Announces a task that writes.
    pub fn begin(&self) {
        self.progress.send_replace(Progress::Written(0));
    }

    /// Reports that all changes up to this number are written, or that the write failed.
    pub fn wrote(&self, change: u64, well: bool) {
        self.progress.send_modify(|progress| {
            let before = match *progress {
                Progress::Written(n) | Progress::Failing(n) => n,
                Progress::Unkept => 0,
            };
            *progress = if well { Progress::Written(change) } else { Progress::Failing(before) };
        });
    }

    /// Completes when a waiter needs a change that is not written.
    pub async fn wanted(&self) {
        let (mut wanted, progress) = (self.wanted.subscribe(), self.progress.subscribe());
        let written = match *progress.borrow() {
            Progress::Written(n) | Progress::Failing(n) => n,
            Progress::Unkept => 0,
        };
        // The sender is this value's own.
        let _ = wanted.wait_for(|change| *change > written).await;
    }

    /// Waits until this change is written, except while writes fail. Returns whether it is written.
    pub(super) async fn until_written(&self, change: u64) -> bool {
        let mut progress = self.progress.subscribe();
        if *progress.borrow() == Progress::Unkept {
            return true;
        }
        self.wanted.send_if_modified(|wanted| {
            let more = *wanted < change;
            *wanted = change.max(*wanted);
            more
        });
        let settled = progress.wait_for(|p| match p {
            Progress::Written(n) => *n >= change,
            Progress::Failing(_) | Progress::Unkept => true,
        });
        matches!(tokio::time::timeout(PATIENCE, settled).await, Ok(Ok(p)) if matches!(*p, Progress::Written(_)))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn an_answer_waits_for_the_disk_and_not_for_ever() {
        let keeping = Keeping::default();
        assert!(keeping.until_written(7).await, "nothing is kept");
        keeping.begin();
        let waits = tokio::spawn({
            let keeping = keeping.clone();
            async move { keeping.until_written(2).await }
        });
        keeping.wanted().await;
        keeping.wrote(1, true);
        keeping.wanted().await;
        assert!(!waits.is_finished());
        keeping.wrote(2, true);
        assert!(waits.await.unwrap());
        assert!(!keeping.until_written(3).await, "the disk hangs");
        keeping.wrote(2, false);
        let answered = keeping.until_written(4).now_or_never();
        assert_eq!(answered, Some(false), "the disk is full: there is nothing to wait for");
        keeping.wrote(4, true);
        assert!(keeping.until_written(4).await);
    }
}
