//! Exchange of reports: each process puts its own into a Lease that the leader reads, and thereby shows that it is alive.
//!
//! A report expires with its lease. Clocks of other machines are never trusted: a report has expired when it was seen
//! unchanged for its duration by our clock, not counting the time in which reports could not be read. Its process is then
//! taken to have ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{leader::Leadership, report::Report};
use crate::sources::{WriteError, kube::ReportLease};

/// Interval of putting and reading reports while something is in progress.
const EVERY: Duration = Duration::from_secs(1);

/// Intervals and lifetimes of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Interval of putting and reading a report when nothing is in progress.
    pub heartbeat: Duration,
    /// Time for which a report is valid.
    pub good_for: Duration,
    /// Time after which the report of an ended process is deleted.
    pub kept: Duration,
}

impl Pace {
    /// The pace for a leader's lease of this length: for Istio's 30 s a heartbeat of 20 s, which is valid for a minute.
    #[must_use]
    pub fn of(lease: Duration) -> Self {
        Self { heartbeat: lease * 2 / 3, good_for: lease * 2, kept: lease * 20 }
    }
}

/// Storage of the reports of all processes.
pub trait ReportStore: Send + Sync + 'static {
    /// Puts the report of this process, valid for `good_for`.
    fn put(&self, name: &str, text: &str, good_for: Duration) -> BoxFuture<'static, Result<(), WriteError>>;

    /// All reports.
    fn all(&self) -> BoxFuture<'static, Result<Vec<ReportLease>, WriteError>>;

    /// Deletes a report.
    fn take_away(&self, name: &str) -> BoxFuture<'static, Result<(), WriteError>>;
}

#[derive(Debug, Default)]
struct Board {
    mine: Option<Report>,
    wanted: bool,
    peers: Option<(u64, Arc<[Report]>)>,
    ended: watch::Sender<Arc<BTreeSet<String>>>,
}

/// The board between the reporter and the exchange. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ReportBoard(Arc<Mutex<Board>>);

impl ReportBoard {
    fn lock(&self) -> MutexGuard<'_, Board> {
        self.0.lock()
    }

    /// Sets the report of this process, and whether others' reports are wanted.
    pub fn tell(&self, mine: Report, wanted: bool) {
        let mut board = self.lock();
        (board.mine, board.wanted) = (Some(mine), wanted);
    }

    /// The last reports of other processes, read in this term; `None` before that.
    #[must_use]
    pub fn peers(&self, term: u64) -> Option<Arc<[Report]>> {
        self.lock().peers.as_ref().filter(|(read_in, _)| *read_in == term).map(|(_, peers)| peers.clone())
    }

    /// The processes that have ended, as far as the leader knows, and changes of them; empty on all other processes.
    #[must_use]
    pub fn ended(&self) -> watch::Receiver<Arc<BTreeSet<String>>> {
        self.lock().ended.subscribe()
    }

    fn took(&self, term: u64, reports: Vec<Report>, ended: BTreeSet<String>) {
        let mut board = self.lock();
        board.peers = Some((term, reports.into()));
        if **board.ended.borrow() != ended {
            tracing::info!(?ended, "processes that do not renew their leases");
            board.ended.send_replace(Arc::new(ended));
        }
    }
}

/// The exchange of one process.
pub struct Exchange {
    /// Storage of the reports.
    pub store: Arc<dyn ReportStore>,
    /// Name of this process.
    pub me: String,
    /// Whether this process leads: the leader reads the others' reports.
    pub leadership: Leadership,
    /// Source of this process's report, and destination of the others'.
    pub board: ReportBoard,
    /// Intervals of putting and reading.
    pub pace: Pace,
    /// Whether an object in the cluster belongs to a process, so that others must know whether that process is alive.
    pub in_use: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

/// The state of the exchange between two rounds.
#[derive(Debug, Default)]
struct Memory {
    put: Option<(String, Instant)>,
    /// Term and time of the last reading.
    read: Option<(u64, Instant)>,
    known: Freshness,
}

impl Exchange {
    /// Puts the report of this process, and reads the others' while it leads, until it is stopped.
    pub async fn run(self, stop: CancellationToken) {
        let (mut memory, mut last_error) = (Memory::default(), String::new());
        while tokio::time::timeout(EVERY, stop.cancelled()).await.is_err() {
            let error = self.round(&mut memory).await.err().map(|e| e.to_string()).unwrap_or_default();
            if !error.is_empty() {
                memory.known.interrupt();
                if error != last_error {
                    tracing::warn!(error, "reports of the distribution of objects cannot be exchanged");
                }
                if let Some(term) = self.leadership.term() {
                    // Without the right to read them, the leader counts its own proxies only: better than nothing.
                    self.board.lock().peers.get_or_insert_with(|| (term, Arc::new([]))).0 = term;
                }
            }
            last_error = error;
        }
        // A lease that is not renewed marks the remaining objects of this process as abandoned.
        if !(self.in_use)(&self.me) {
            let _ = tokio::time::timeout(EVERY, self.store.take_away(&self.me)).await;
        }
    }

    async fn round(&self, memory: &mut Memory) -> Result<(), WriteError> {
        let (mine, wanted) = {
            let board = self.board.lock();
            (board.mine.clone(), board.wanted)
        };
        let text = mine.and_then(|mine| serde_json::to_string(&mine).ok()).unwrap_or_default();
        let is_put = |(put, at): &(String, Instant)| *put == text && at.elapsed() < self.pace.heartbeat;
        if !memory.put.as_ref().is_some_and(is_put) {
            self.store.put(&self.me, &text, self.pace.good_for).await?;
            memory.put = Some((text, Instant::now()));
        }
        let Some(term) = self.leadership.term() else {
            if memory.read.take().is_some() {
                memory.known = Freshness::default();
                self.board.lock().ended.send_replace(Arc::default());
            }
            return Ok(());
        };
        let is_read = |(read_in, at): (u64, Instant)| read_in == term && at.elapsed() < self.pace.heartbeat;
        if wanted || !memory.read.is_some_and(is_read) {
            let all = self.store.all().await?;
            let sorted = memory.known.sort(all, &self.me, self.pace.kept, Instant::now());
            memory.read = Some((term, Instant::now()));
            self.board.took(term, sorted.reports, sorted.ended);
            for name in sorted.old.iter().filter(|name| !(self.in_use)(name)) {
                self.store.take_away(name).await?;
            }
        }
        Ok(())
    }
}

/// The time of each report's last change, by our clock.
#[derive(Debug, Default)]
struct Freshness {
    seen: BTreeMap<String, (String, Instant)>,
    interrupted: bool,
}

/// Reports of other processes, by age.
#[derive(Debug, Default)]
struct Sorted {
    /// Reports that have not expired.
    reports: Vec<Report>,
    /// Processes whose reports have expired.
    ended: BTreeSet<String>,
    /// Processes whose reports expired long ago.
    old: Vec<String>,
}

impl Freshness {
    /// Reports could not be read or put: others may have failed as well, so all get their full time again.
    const fn interrupt(&mut self) {
        self.interrupted = true;
    }

    fn sort(&mut self, all: Vec<ReportLease>, me: &str, kept: Duration, now: Instant) -> Sorted {
        if std::mem::take(&mut self.interrupted) {
            self.seen.clear();
        }
        self.seen.retain(|name, _| all.iter().any(|p| p.process == *name));
        let mut sorted = Sorted::default();
        for posted in all.into_iter().filter(|p| p.process != me) {
            let seen = self.seen.entry(posted.process.clone()).or_insert_with(|| (posted.version.clone(), now));
            if seen.0 != posted.version {
                *seen = (posted.version, now);
            }
            let age = now.saturating_duration_since(seen.1);
            if age <= posted.good_for {
                sorted.reports.extend(serde_json::from_str::<Report>(&posted.text).ok());
                continue;
            }
            if age > kept {
                sorted.old.push(posted.process.clone());
            }
            sorted.ended.insert(posted.process);
        }
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(name: &str, version: &str) -> ReportLease {
        ReportLease {
            process: name.to_string(),
            text: r#"{"proxies": 3}"#.to_string(),
            version: version.to_string(),
            good_for: Duration::from_secs(60),
        }
    }

    #[test]
    fn a_report_that_is_not_renewed_does_not_count_for_long() {
        let (mut known, start) = (Freshness::default(), Instant::now());
        let mut look = |all: Vec<ReportLease>, second| {
            let sorted = known.sort(all, "me", Duration::from_secs(600), start + Duration::from_secs(second));
            let proxies = sorted.reports.iter().map(|r| r.proxies).sum::<usize>();
            (proxies, sorted.ended.into_iter().collect::<Vec<_>>().join(" "), sorted.old.join(" "))
        };
        let says = |proxies, ended: &str, old: &str| (proxies, ended.to_string(), old.to_string());
        assert_eq!(look(vec![posted("me", "1"), posted("a", "1"), posted("b", "1")], 0), says(6, "", ""));
        assert_eq!(look(vec![posted("a", "2"), posted("b", "1")], 61), says(3, "b", ""));
        assert_eq!(look(vec![posted("a", "2"), posted("b", "1")], 601), says(0, "a b", "b"));
        assert_eq!(look(vec![posted("a", "3")], 700), says(3, "", ""));
    }

    #[test]
    fn processes_have_not_ended_because_reports_could_not_be_read() {
        let (mut known, start) = (Freshness::default(), Instant::now());
        let look = |known: &mut Freshness, second| {
            let now = start + Duration::from_secs(second);
            known.sort(vec![posted("a", "1")], "me", Duration::from_secs(600), now).ended.len()
        };
        assert_eq!(look(&mut known, 0), 0);
        known.interrupt();
        assert_eq!((look(&mut known, 900), look(&mut known, 960), look(&mut known, 961)), (0, 0, 1));
    }
}
