//! The state of a feed, for `/debug/sourcez`.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;

/// The state of one watched kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FeedState {
    /// Nothing has come yet.
    #[default]
    Starting,
    /// Listed, and watched.
    Watching,
    /// The server does not answer as it should; its last content stays, and it is tried again.
    Retrying,
    /// No right to read it; its last content stays, and it is tried again slowly.
    Forbidden,
    /// The server has no such kind (any more); its last content stays.
    Absent,
}

/// One watched kind, as it last was.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct FeedReport {
    /// The resource, as `plural.group`.
    pub resource: String,
    /// Namespace; empty for all.
    pub namespace: String,
    /// The version that it is read in; empty when it is not.
    pub version: String,
    /// State of the watch.
    pub state: FeedState,
    /// Start of this state (Unix seconds).
    pub since: u64,
    /// Sound objects that it holds.
    pub objects: usize,
    /// Failures in a row.
    pub attempt: u32,
    /// When it is tried again, in milliseconds after `since`; 0 when it is not waiting.
    pub pause_ms: u64,
    /// Complete lists so far.
    pub lists: u64,
    /// The last error; empty while all is well.
    pub last_error: String,
}

impl FeedReport {
    /// The watch is in order.
    pub(super) fn well(&mut self) {
        self.enter(FeedState::Watching);
        (self.attempt, self.pause_ms) = (0, 0);
        self.last_error.clear();
    }

    /// Something is wrong; it is tried again after `pause`.
    pub(super) fn trouble(&mut self, state: FeedState, error: &str, attempt: u32, pause: Duration) {
        self.enter(state);
        self.attempt = attempt;
        self.pause_ms = pause.as_millis() as u64;
        error.clone_into(&mut self.last_error);
    }

    /// There is no such kind, and none is expected.
    pub(super) fn absent(&mut self) {
        self.enter(FeedState::Absent);
        (self.attempt, self.pause_ms) = (0, 0);
    }

    fn enter(&mut self, state: FeedState) {
        if self.state != state {
            self.state = state;
            self.since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
        }
    }
}

/// A report that its feed writes and its source reads.
#[derive(Debug, Clone, Default)]
pub(super) struct FeedBoard(Arc<Mutex<FeedReport>>);

impl FeedBoard {
    pub(super) fn new(resource: String) -> Self {
        Self(Arc::new(Mutex::new(FeedReport { resource, ..FeedReport::default() })))
    }

    pub(super) fn read(&self) -> FeedReport {
        self.0.lock().clone()
    }

    /// Changes the report and gives the state that it is in now.
    pub(super) fn write(&self, change: &mut dyn FnMut(&mut FeedReport)) -> FeedState {
        let mut report = self.0.lock();
        change(&mut report);
        report.state
    }
}
