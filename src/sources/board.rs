//! The report of a source, for readiness and for `/debug/sourcez`.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::{Findings, SourceId, kube::FeedReport};

/// The state of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceState {
    /// Has not delivered yet.
    #[default]
    Starting,
    /// Content is current.
    Synced,
    /// The last good content is in force; the last error is the reason.
    Stale,
    /// A mass deletion waits for its confirmation.
    Holding,
}

/// A source as it last described itself.
#[derive(Debug, Clone, serde::Serialize)]
pub struct SourceReport {
    /// Name of the source.
    pub source: SourceId,
    /// State of its content.
    pub state: SourceState,
    /// The number of objects in force.
    pub objects: usize,
    /// Start of this state (Unix seconds).
    pub since: u64,
    /// The last look at its place (Unix seconds).
    pub last_look: u64,
    /// The number of restarts.
    pub restarts: u32,
    /// The last error; empty when there is none.
    pub last_error: String,
    /// Keys whose deletion is held back.
    pub held_deletions: Vec<String>,
    /// Keys of objects that are in force although their document was removed or is refused.
    pub kept: Vec<String>,
    /// The kinds that it watches, each with a state of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub feeds: Vec<FeedReport>,
    /// Files whose newest text is not read, or not parsed yet, a hundred at most; the objects of the text before it are in
    /// force.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unparsed: Vec<String>,
    /// Kinds that the source has never given an answer for, although it has delivered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<String>,
    /// The time at which the content in force was saved (Unix seconds), if it is from the state folder because the source
    /// does not deliver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_at: Option<u64>,
    /// The reason why its content in the state folder is not served; empty when there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub saved_content_refused: String,
    /// The findings in its documents.
    pub findings: Arc<Findings>,
}

/// A shared, always readable report. Writers never hold it across an await.
#[derive(Debug)]
pub struct SourceBoard {
    inner: Mutex<(SourceReport, Instant)>,
    written: Notify,
}

impl SourceBoard {
    /// A board of a source that has not begun.
    #[must_use]
    pub fn new(source: SourceId) -> Self {
        let report = SourceReport {
            source,
            state: SourceState::Starting,
            objects: 0,
            since: unix_seconds(),
            last_look: 0,
            restarts: 0,
            last_error: String::new(),
            held_deletions: Vec::new(),
            kept: Vec::new(),
            feeds: Vec::new(),
            unparsed: Vec::new(),
            unanswered: Vec::new(),
            saved_at: None,
            saved_content_refused: String::new(),
            findings: Arc::default(),
        };
        Self { inner: Mutex::new((report, Instant::now())), written: Notify::new() }
    }

    /// The report as it stands.
    #[must_use]
    pub fn read(&self) -> SourceReport {
        self.lock().0.clone()
    }

    /// Changes the report; counts as a heartbeat.
    pub fn write(&self, change: impl FnOnce(&mut SourceReport)) {
        let mut inner = self.lock();
        let state = inner.0.state;
        change(&mut inner.0);
        if inner.0.state != state {
            inner.0.since = unix_seconds();
        }
        inner.1 = Instant::now();
        drop(inner);
        self.written.notify_waiters();
    }

    /// Waits until the report satisfies a condition.
    pub async fn until(&self, says: impl Fn(&SourceReport) -> bool) {
        loop {
            let mut written = std::pin::pin!(self.written.notified());
            written.as_mut().enable();
            if says(&self.lock().0) {
                return;
            }
            written.await;
        }
    }

    /// A heartbeat: the source has looked at its place.
    pub fn beat(&self) {
        self.write(|r| r.last_look = unix_seconds());
    }

    /// The time since the last heartbeat.
    #[must_use]
    pub fn silence(&self) -> Duration {
        self.lock().1.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, (SourceReport, Instant)> {
        self.inner.lock()
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
