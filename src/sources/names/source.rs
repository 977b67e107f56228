//! The task that resolves: it follows the wanted names, looks up those that are due, and hands changes over.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{sync::watch, time::Instant};

use super::table::{MOST_NAMES, NameRecords, NameTable};
use crate::{
    model::ResolvedNames,
    settings::NameSettings,
    sources::{Source, SourceId, SourcePort, SourceState},
};

/// Name of the source.
const SOURCE: &str = "dns:network-gateways";
/// Questions under way at most.
const MOST_QUESTIONS: usize = 16;
/// The longest time between two heartbeats.
const BEAT: Duration = Duration::from_secs(5);

/// Looks up names.
pub trait Lookup: Send + Sync + 'static {
    /// The addresses of a name; within bounded time.
    fn ask(&self, name: &str) -> BoxFuture<'static, NameRecords>;
}

/// The receiver of resolved addresses.
pub trait NameSink: Send + Sync + 'static {
    /// Hands over the addresses of all names.
    fn apply(&self, names: Arc<ResolvedNames>);
}

/// The names that are wanted, and the number of their state, which grows with each change.
pub struct WantedNames {
    /// The number of the state.
    pub level: watch::Receiver<u64>,
    /// Reads the names.
    pub read: Arc<dyn Fn() -> Arc<BTreeSet<Arc<str>>> + Send + Sync>,
}

/// Resolves host names.
pub struct NameSource {
    inner: Arc<Inner>,
}

struct Inner {
    wanted: WantedNames,
    lookup: Arc<dyn Lookup>,
    sink: Arc<dyn NameSink>,
    /// Kept over restarts: a fault of the task takes no address away.
    table: Mutex<NameTable>,
    answered: watch::Sender<u64>,
}

impl NameSource {
    /// A source that has not begun.
    #[must_use]
    pub fn new(settings: &NameSettings, wanted: WantedNames, lookup: Arc<dyn Lookup>, sink: Arc<dyn NameSink>) -> Self {
        let table = Mutex::new(NameTable::new(settings.clone()));
        Self { inner: Arc::new(Inner { wanted, lookup, sink, table, answered: watch::Sender::new(0) }) }
    }

    /// The last number of the wanted names of which each has had an answer or a failure.
    #[must_use]
    pub fn answered(&self) -> watch::Receiver<u64> {
        self.inner.answered.subscribe()
    }
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, NameTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_over(&self) {
        let addresses = Arc::new(self.table().addresses());
        self.sink.apply(addresses);
    }

    /// Writes the report. Problems are logged when they begin.
    fn report(&self, port: &SourcePort, level: u64, told: &mut BTreeMap<Arc<str>, String>) {
        let (problems, left_out, resolved, all) = {
            let table = self.table();
            (table.problems(), table.left_out(), table.addresses().len(), table.is_answered())
        };
        for (name, error) in problems.iter().filter(|(name, _)| !told.contains_key(*name)) {
            tracing::warn!(name = &**name, error, "no addresses for the host name of a gateway between networks");
        }
        *told = problems;
        let mut error = told.iter().next().map_or(String::new(), |(name, error)| match told.len() {
            1 => format!("{name}: {error}"),
            more => format!("{name}: {error}; and {} more names", more - 1),
        });
        if left_out > 0 {
            error = format!("{left_out} names beyond {MOST_NAMES} are not resolved; {error}");
        }
        port.board.write(|report| {
            report.objects = resolved;
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

    /// Runs until it is stopped.
    async fn follow(&self, port: SourcePort) {
        let mut level = self.wanted.level.clone();
        let mut asked: FuturesUnordered<BoxFuture<'static, (Arc<str>, NameRecords)>> = FuturesUnordered::new();
        let mut told = BTreeMap::new();
        self.table().interrupted(Instant::now().into_std());
        loop {
            let number = *level.borrow_and_update();
            let names = (self.wanted.read)();
            let now = Instant::now().into_std();
            if self.table().want(&names, now) {
                self.hand_over();
            }
            while asked.len() < MOST_QUESTIONS {
                let Some(name) = self.table().ask_next(now) else { break };
                let answer = self.lookup.ask(&name);
                asked.push(async move { (name, answer.await) }.boxed());
            }
            self.report(&port, number, &mut told);
            let wake = self.table().wake_at().filter(|_| asked.len() < MOST_QUESTIONS);
            let pause = wake.map_or(BEAT, |at| at.saturating_duration_since(now)).min(BEAT);
            tokio::select! {
                () = port.stop.cancelled() => return,
                changed = level.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(pause) => {}
                Some((name, answer)) = asked.next(), if !asked.is_empty() => {
                    let changed = self.table().answered(&name, answer, Instant::now().into_std());
                    if changed {
                        self.hand_over();
                    }
                }
            }
        }
    }
}

impl Source for NameSource {
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
