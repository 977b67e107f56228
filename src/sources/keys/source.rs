//! The task that fetches: it follows which keys are wanted, fetches those that are due, and hands changes over.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{sync::watch, time::Instant};

use super::table::{KeyTable, MOST_LOCATIONS, Wanted};
use crate::{
    model::key_set::{KeyLocation, KeySets},
    sources::{Source, SourceId, SourcePort, SourceState},
};

/// Name of the source.
const SOURCE: &str = "jwks:request-authentication";
/// Fetches under way at most.
const MOST_FETCHES: usize = 16;
/// A sign of life is given at least this often.
const BEAT: Duration = Duration::from_secs(5);

/// Fetches key sets.
pub trait Fetch: Send + Sync + 'static {
    /// The key set of a location, or the reason there is none; within this time.
    fn fetch(&self, at: &KeyLocation, patience: Duration) -> BoxFuture<'static, Result<String, String>>;
}

/// Takes keys.
pub trait KeySink: Send + Sync + 'static {
    /// Hands over the keys of all locations.
    fn apply(&self, keys: Arc<KeySets>);
}

/// The keys that are wanted, and the number of their state, which grows with each change.
pub struct WantedKeys {
    /// The number.
    pub level: watch::Receiver<u64>,
    /// Reads the locations.
    pub read: Arc<dyn Fn() -> Wanted + Send + Sync>,
}

/// Fetches key sets.
pub struct KeySource {
    inner: Arc<Inner>,
}

struct Inner {
    wanted: WantedKeys,
    fetcher: Arc<dyn Fetch>,
    sink: Arc<dyn KeySink>,
    /// Kept over restarts: a fault of the task takes no key away.
    table: Mutex<KeyTable>,
    answered: watch::Sender<u64>,
}

impl KeySource {
    /// A source that has not begun; `rhythm` is the pause between two fetches of a location.
    #[must_use]
    pub fn new(rhythm: Duration, wanted: WantedKeys, fetcher: Arc<dyn Fetch>, sink: Arc<dyn KeySink>) -> Self {
        let table = Mutex::new(KeyTable::new(rhythm));
        Self { inner: Arc::new(Inner { wanted, fetcher, sink, table, answered: watch::Sender::new(0) }) }
    }

    /// The last number of the wanted keys of which each has had an answer or a failure.
    #[must_use]
    pub fn answered(&self) -> watch::Receiver<u64> {
        self.inner.answered.subscribe()
    }
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, KeyTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_over(&self) {
        let keys = Arc::new(self.table().keys());
        self.sink.apply(keys);
    }

    /// Says how things are. Problems are logged when they begin.
    fn report(&self, port: &SourcePort, level: u64, told: &mut BTreeMap<KeyLocation, String>) {
        let (problems, left_out, known, all) = {
            let table = self.table();
            (table.problems(), table.left_out(), table.keys(), table.is_answered())
        };
        for (at, error) in problems.iter().filter(|(at, _)| !told.contains_key(*at)) {
            let kept = known.contains_key(at);
            tracing::warn!(
                location = at.as_str(),
                error,
                kept,
                "the keys of a RequestAuthentication cannot be fetched"
            );
        }
        *told = problems;
        let mut error = told.iter().next().map_or(String::new(), |(at, error)| match told.len() {
            1 => format!("{}: {error}", at.as_str()),
            more => format!("{}: {error}; and {} more locations", at.as_str(), more - 1),
        });
        if left_out > 0 {
            error = format!("{left_out} locations beyond {MOST_LOCATIONS} are not fetched; {error}");
        }
        port.board.write(|report| {
            report.objects = known.len();
            report.state = match (all, error.is_empty()) {
                (false, _) if report.state == SourceState::Starting => SourceState::Starting,
                (_, true) => SourceState::Synced,
                (_, false) => SourceState::Stale,
            };
            report.last_error = error;
        });
        port.board.beat();
        if all {
            self.answered.send_if_modified(|last| std::mem::replace(last, level) != level);
        }
    }

    /// Runs until it is told to stop.
    async fn follow(&self, port: SourcePort) {
        let mut level = self.wanted.level.clone();
        let mut asked: FuturesUnordered<BoxFuture<'static, (KeyLocation, Result<String, String>)>> =
            FuturesUnordered::new();
        let mut told = BTreeMap::new();
        self.table().interrupted(Instant::now().into_std());
        loop {
            let number = *level.borrow_and_update();
            let wanted = (self.wanted.read)();
            let now = Instant::now().into_std();
            if self.table().want(&wanted, now) {
                self.hand_over();
            }
            while asked.len() < MOST_FETCHES {
                let Some((at, patience)) = self.table().ask_next(now) else { break };
                let answer = self.fetcher.fetch(&at, patience);
                asked.push(async move { (at, answer.await) }.boxed());
            }
            self.report(&port, number, &mut told);
            let wake = self.table().wake_at().filter(|_| asked.len() < MOST_FETCHES);
            let pause = wake.map_or(BEAT, |at| at.saturating_duration_since(now)).min(BEAT);
            tokio::select! {
                () = port.stop.cancelled() => return,
                changed = level.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(pause) => {}
                Some((at, answer)) = asked.next(), if !asked.is_empty() => {
                    let changed = self.table().answered(&at, answer, Instant::now().into_std());
                    if changed {
                        self.hand_over();
                    }
                }
            }
        }
    }
}

impl Source for KeySource {
    fn id(&self) -> SourceId {
        SOURCE.into()
    }

    fn run(&self, port: SourcePort) -> BoxFuture<'static, anyhow::Result<()>> {
        let inner = self.inner.clone();
        async move {
            inner.follow(port).await;
            Ok(())
        }
        .boxed()
    }
}
