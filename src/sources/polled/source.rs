//! The task that polls: it follows the keys in demand, polls those that are due, and hands changes over.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::{
    rules::PollRules,
    table::{PolledTable, Values},
};
use crate::sources::{Source, SourceId, SourcePort};

/// Polls under way at most.
const MOST_POLLS: usize = 16;
/// The longest time between two heartbeats.
const BEAT: Duration = Duration::from_secs(5);

/// Polls one key.
pub trait Poll<R: PollRules>: Send + Sync + 'static {
    /// The answer for a key; within bounded time.
    fn poll(&self, key: &R::Key, terms: &R::Terms) -> BoxFuture<'static, R::Answer>;
}

/// The keys in demand, and the number of their state, which grows with each change.
pub struct Demand<R: PollRules> {
    /// The number of the state.
    pub level: watch::Receiver<u64>,
    /// Reads the keys.
    pub read: Box<dyn Fn() -> BTreeMap<R::Key, R::Terms> + Send + Sync>,
}

/// The receiver of the values of all keys.
type Sink<R> = Box<dyn Fn(Arc<Values<R>>) + Send + Sync>;

/// A source whose content is polled values instead of objects.
pub struct PolledSource<R: PollRules> {
    inner: Arc<Inner<R>>,
}

struct Inner<R: PollRules> {
    demand: Demand<R>,
    poll: Box<dyn Poll<R>>,
    sink: Sink<R>,
    /// Kept over restarts: a fault of the task takes no value away.
    table: Mutex<PolledTable<R>>,
    answered: watch::Sender<u64>,
    /// Values are wanted anew before they are due.
    hasten: Arc<Notify>,
}

impl<R: PollRules> PolledSource<R> {
    /// A source that has not begun.
    #[must_use]
    pub fn new(
        rules: R,
        demand: Demand<R>,
        poll: impl Poll<R>,
        sink: impl Fn(Arc<Values<R>>) + Send + Sync + 'static,
    ) -> Self {
        Self::hastened(rules, demand, poll, sink, Arc::default())
    }

    /// As [`PolledSource::new`]; values are polled before they are due whenever this is notified.
    #[must_use]
    pub fn hastened(
        rules: R,
        demand: Demand<R>,
        poll: impl Poll<R>,
        sink: impl Fn(Arc<Values<R>>) + Send + Sync + 'static,
        hasten: Arc<Notify>,
    ) -> Self {
        let table = Mutex::new(PolledTable::new(rules));
        let (poll, sink, answered) = (Box::new(poll), Box::new(sink), watch::Sender::new(0));
        Self { inner: Arc::new(Inner { demand, poll, sink, table, answered, hasten }) }
    }

    /// The last number of the demand of which each key has had an answer or a failure.
    #[must_use]
    pub fn answered(&self) -> watch::Receiver<u64> {
        self.inner.answered.subscribe()
    }
}

impl<R: PollRules> Inner<R> {
    fn table(&self) -> MutexGuard<'_, PolledTable<R>> {
        self.table.lock()
    }

    fn hand_over(&self) {
        let values = Arc::new(self.table().values());
        (self.sink)(values);
    }

    /// Writes the report. Problems are logged when they begin.
    fn report(&self, port: &SourcePort, level: u64, told: &mut BTreeMap<R::Key, String>) {
        let table = self.table();
        let problems = table.problems();
        for (key, error) in problems.iter().filter(|(key, _)| !told.contains_key(*key)) {
            R::log(key, error, table.has_value(key));
        }
        *told = problems;
        port.board.write(|report| table.write(report));
        let all = table.is_answered();
        drop(table);
        port.board.beat();
        if all {
            self.answered.send_if_modified(|last| std::mem::replace(last, level) != level);
        }
    }

    /// Runs until it is stopped.
    async fn follow(&self, port: SourcePort) {
        let mut level = self.demand.level.clone();
        let mut polls: FuturesUnordered<BoxFuture<'static, (R::Key, R::Answer)>> = FuturesUnordered::new();
        let mut told = BTreeMap::new();
        self.table().interrupted(Instant::now().into_std());
        loop {
            let number = *level.borrow_and_update();
            let keys = (self.demand.read)();
            let now = Instant::now().into_std();
            if self.table().demand(&keys, now) {
                self.hand_over();
            }
            while polls.len() < MOST_POLLS {
                let Some((key, terms)) = self.table().poll_next(now) else { break };
                let answer = self.poll.poll(&key, &terms);
                polls.push(async move { (key, answer.await) }.boxed());
            }
            self.report(&port, number, &mut told);
            let wake = self.table().wake_at().filter(|_| polls.len() < MOST_POLLS);
            let pause = wake.map_or(BEAT, |at| at.saturating_duration_since(now)).min(BEAT);
            tokio::select! {
                () = port.stop.cancelled() => return,
                changed = level.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(pause) => {}
                () = self.hasten.notified() => self.table().hasten(Instant::now().into_std()),
                Some((key, answer)) = polls.next(), if !polls.is_empty() => {
                    let changed = self.table().answered(&key, answer, Instant::now().into_std());
                    if changed {
                        self.hand_over();
                    }
                }
            }
        }
    }
}

impl<R: PollRules> Source for PolledSource<R> {
    fn id(&self) -> SourceId {
        R::SOURCE.into()
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
