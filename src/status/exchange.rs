//! Reports of all processes: each puts its own where the one that writes reads them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{leader::Leadership, report::Report};
use crate::sources::WriteError;

/// How often reports are put and read while something moves.
const EVERY: Duration = Duration::from_secs(1);
/// How often a report is put although nothing has moved.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// A report that was not put again for so long does not count (Istio's minute).
const STALE: Duration = Duration::from_secs(60);
/// When the report of a process that is gone is taken away.
const GONE: Duration = Duration::from_secs(600);

/// A report as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    /// Whose it is.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Changes with every write.
    pub version: String,
}

/// Keeps reports.
pub trait ReportStore: Send + Sync + 'static {
    /// Puts the report of this process.
    fn put(&self, name: &str, text: &str) -> BoxFuture<'static, Result<(), WriteError>>;

    /// All reports.
    fn all(&self) -> BoxFuture<'static, Result<Vec<Posted>, WriteError>>;

    /// Takes a report away.
    fn take_away(&self, name: &str) -> BoxFuture<'static, Result<(), WriteError>>;
}

#[derive(Debug, Default)]
struct Board {
    mine: Option<Report>,
    wanted: bool,
    peers: Option<(u64, Arc<[Report]>)>,
}

/// Where the reporter and the exchange meet. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ReportBoard(Arc<Mutex<Board>>);

impl ReportBoard {
    fn lock(&self) -> MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what this process has to report, and whether others' reports are wanted.
    pub fn tell(&self, mine: Report, wanted: bool) {
        let mut board = self.lock();
        (board.mine, board.wanted) = (Some(mine), wanted);
    }

    /// What the others said last, read in this term; `None` before that.
    #[must_use]
    pub fn peers(&self, term: u64) -> Option<Arc<[Report]>> {
        self.lock().peers.as_ref().filter(|(read_in, _)| *read_in == term).map(|(_, peers)| peers.clone())
    }
}

/// Puts the report of this process (`me`) and reads the others' while it leads, until it is stopped.
pub async fn exchange(
    store: Arc<dyn ReportStore>,
    me: String,
    leadership: Leadership,
    board: ReportBoard,
    stop: CancellationToken,
) {
    let mut put: Option<(Report, Instant)> = None;
    let mut known = Freshness::default();
    let mut last_error = String::new();
    while tokio::time::timeout(EVERY, stop.cancelled()).await.is_err() {
        let (mine, wanted, read_in) = {
            let board = board.lock();
            (board.mine.clone(), board.wanted, board.peers.as_ref().map(|(term, _)| *term))
        };
        let round = async {
            if let Some(mine) = mine.filter(|m| !put.as_ref().is_some_and(|(p, at)| p == m && at.elapsed() < HEARTBEAT))
            {
                store.put(&me, &serde_json::to_string(&mine).unwrap_or_default()).await?;
                put = Some((mine, Instant::now()));
            }
            let term = leadership.term();
            if let Some(term) = term.filter(|term| wanted || read_in != Some(*term)) {
                let all = store.all().await?;
                let (fresh, gone) = known.sort(all, &me, Instant::now());
                board.lock().peers = Some((term, fresh.into()));
                for name in gone {
                    store.take_away(&name).await?;
                }
            }
            Ok::<(), WriteError>(())
        };
        let error = round.await.err().map(|e| e.to_string()).unwrap_or_default();
        if !error.is_empty() && error != last_error {
            tracing::warn!(error, "reports of how far objects have come");
        }
        if !error.is_empty()
            && let Some(term) = leadership.term()
        {
            // Who may not read them counts its own proxies: better than nothing.
            board.lock().peers.get_or_insert_with(|| (term, Arc::new([]))).0 = term;
        }
        last_error = error;
    }
    let _ = tokio::time::timeout(EVERY, store.take_away(&me)).await;
}

/// When each report was last seen to change, by our clock.
#[derive(Debug, Default)]
struct Freshness(BTreeMap<String, (String, Instant)>);

impl Freshness {
    /// The reports of others that count, and the names of those that are to be taken away.
    fn sort(&mut self, all: Vec<Posted>, me: &str, now: Instant) -> (Vec<Report>, Vec<String>) {
        self.0.retain(|name, _| all.iter().any(|p| p.name == *name));
        let (mut fresh, mut gone) = (Vec::new(), Vec::new());
        for posted in all.into_iter().filter(|p| p.name != me) {
            let seen = self.0.entry(posted.name.clone()).or_insert_with(|| (posted.version.clone(), now));
            if seen.0 != posted.version {
                *seen = (posted.version, now);
            }
            let age = now.saturating_duration_since(seen.1);
            if age > GONE {
                gone.push(posted.name);
            } else if age <= STALE {
                fresh.extend(serde_json::from_str::<Report>(&posted.text).ok());
            }
        }
        (fresh, gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_is_not_renewed_does_not_count_for_long() {
        let posted = |name: &str, version: &str| Posted {
            name: name.to_string(),
            text: r#"{"proxies": 3}"#.to_string(),
            version: version.to_string(),
        };
        let (mut known, start) = (Freshness::default(), Instant::now());
        let mut look = |all: Vec<Posted>, second| {
            let (fresh, gone) = known.sort(all, "me", start + Duration::from_secs(second));
            (fresh.iter().map(|r| r.proxies).sum::<usize>(), gone)
        };
        assert_eq!(look(vec![posted("me", "1"), posted("a", "1"), posted("b", "1")], 0), (6, vec![]));
        assert_eq!(look(vec![posted("a", "2"), posted("b", "1")], 61), (3, vec![]));
        assert_eq!(look(vec![posted("a", "2"), posted("b", "1")], 601), (0, vec!["b".to_string()]));
        assert_eq!(look(vec![posted("a", "3")], 700), (3, vec![]));
    }
}
