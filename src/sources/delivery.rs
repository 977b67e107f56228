//! Delivery of a source's content to the store, and the report of its state: the same for every source of config objects.
//!
//! One batch is in flight, and its reply is the back-pressure. A full snapshot is owed at the beginning of a run, after a
//! request for a resync, and after a batch that was interrupted: the store may then hold less than the source believes.
//! Changes that arrive meanwhile are part of that snapshot. [`Owed`] decides and is pure; [`Delivery`] sends and reports.
//! Nothing here decides which objects a source holds, or which deletions go through.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Change, Findings, SourceBatch, SourceBoard, SourceId, SourcePort, SourceReport, SourceState};
use crate::model::Config;

/// Pause before a full snapshot that is owed is sent again.
const RETRY: Duration = Duration::from_secs(1);

/// The part of a source's content that the store may lack.
#[derive(Debug)]
struct Owed {
    /// The next batch must be a full snapshot.
    full: bool,
    /// The store has taken a full snapshot once.
    delivered: bool,
}

impl Owed {
    /// The next batch, if there is anything to send: the change, or all objects while a full snapshot is owed.
    fn next(&self, change: Change, all: impl FnOnce() -> Vec<Arc<Config>>) -> Option<Change> {
        let change = if self.full { Change::Full(all()) } else { change };
        (!change.is_empty()).then_some(change)
    }

    /// The store has taken the batch, or the batch was interrupted.
    fn answered(&mut self, taken: bool) {
        self.full = !taken;
        self.delivered |= taken;
    }
}

/// A request to a running source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// The run ends.
    Stop,
    /// The next batch is a full snapshot.
    Resync,
    /// Held mass deletions are confirmed.
    Confirm,
}

/// The state of a source's content, for its report.
#[derive(Debug, Default)]
pub(super) struct Status {
    /// Objects in force.
    pub(super) objects: usize,
    /// The content in force may be older than the place it is read from.
    pub(super) is_stale: bool,
    /// The error that is shown; empty when there is none.
    pub(super) trouble: String,
    /// Keys whose deletion is held.
    pub(super) held: Vec<String>,
    /// Keys of objects in force whose document was removed or is refused.
    pub(super) kept: Vec<String>,
    /// The findings, if they have changed.
    pub(super) findings: Option<Arc<Findings>>,
}

/// The deliveries of one run of a source.
pub(super) struct Delivery {
    source: SourceId,
    port: SourcePort,
    owed: Owed,
}

impl Delivery {
    /// A run begins. `delivered`: the store has taken the content that the source begins with from an earlier run.
    pub(super) fn new(source: SourceId, port: SourcePort, delivered: bool) -> Self {
        Self { source, port, owed: Owed { full: true, delivered } }
    }

    /// The source's report.
    pub(super) fn board(&self) -> &SourceBoard {
        &self.port.board
    }

    /// The objects that were saved of the source, for those whose place is known to hold them in a form that is refused.
    pub(super) async fn saved(&self) -> Vec<Arc<Config>> {
        self.port.sink.saved(&self.source).await
    }

    /// Waits for the next request. Safe to drop: a request that was not returned is kept.
    pub(super) async fn request(&self) -> Request {
        tokio::select! {
            biased;
            () = self.port.stop.cancelled() => Request::Stop,
            () = self.port.resync.notified() => Request::Resync,
            () = self.port.confirm.notified() => Request::Confirm,
        }
    }

    /// Whether the source is to stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.port.stop.is_cancelled()
    }

    /// The next batch is to be a full snapshot.
    pub(super) const fn owe_full(&mut self) {
        self.owed.full = true;
    }

    /// Whether the next batch is a full snapshot.
    pub(super) const fn owes_full(&self) -> bool {
        self.owed.full
    }

    /// Whether the store has taken a full snapshot once.
    pub(super) const fn is_delivered(&self) -> bool {
        self.owed.delivered
    }

    /// When a full snapshot that is owed is to be sent again without a request.
    pub(super) fn retry_at(&self, now: Instant) -> Option<Instant> {
        self.owed.full.then(|| now + RETRY)
    }

    /// Sends a change, or `all` objects while a full snapshot is owed, and waits for the reply. True when the store has
    /// taken it; false when there was nothing to send, or the batch was interrupted.
    pub(super) async fn send(&mut self, change: Change, all: impl FnOnce() -> Vec<Arc<Config>>) -> bool {
        let Some(change) = self.owed.next(change, all) else { return false };
        let (full, upserts, deletes) = match &change {
            Change::Full(all) => (true, all.len(), 0),
            Change::Delta { upserts, deletes } => (false, upserts.len(), deletes.len()),
        };
        self.port.board.beat();
        let reply = self.port.sink.apply(SourceBatch { source: self.source.clone(), change }).await;
        self.owed.answered(reply.is_ok());
        let source = &*self.source;
        match reply {
            Ok(_) if full => tracing::info!(source, objects = upserts, "full snapshot delivered"),
            Ok(_) => tracing::debug!(source, upserts, deletes, "change delivered"),
            Err(ref error) => tracing::warn!(source, %error, "batch interrupted, a full snapshot follows"),
        }
        reply.is_ok()
    }

    /// Writes the report; `more` adds the fields that only this source has. True when the error in it is a new one.
    pub(super) fn report(&self, status: Status, more: impl FnOnce(&mut SourceReport)) -> bool {
        let Status { objects, is_stale, trouble, held, kept, findings } = status;
        let mut is_new = false;
        self.port.board.write(|report| {
            // Before the first delivery the state and the number are those of saved content, if that is served.
            if self.owed.delivered {
                report.state = match () {
                    () if !held.is_empty() => SourceState::Holding,
                    () if is_stale => SourceState::Stale,
                    () => SourceState::Synced,
                };
            }
            if self.owed.delivered || report.saved_at.is_none() {
                report.objects = objects;
            }
            if report.held_deletions.is_empty() && !held.is_empty() {
                tracing::warn!(source = &*self.source, objects = held.len(), "mass deletion held");
            }
            is_new = !trouble.is_empty() && report.last_error != trouble;
            (report.held_deletions, report.kept, report.last_error) = (held, kept, trouble);
            if let Some(findings) = findings {
                report.findings = findings;
            }
            more(report);
        });
        self.port.board.beat();
        is_new
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use futures::future::{BoxFuture, ready};
    use parking_lot::{Mutex, MutexGuard};
    use proptest::prelude::*;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{
        model::{ConfigKey, Interrupted, Origin, decode},
        sources::{Applied, ConfigSink},
    };

    type Keys = BTreeSet<ConfigKey>;

    /// The reply to a batch.
    #[derive(Debug, Clone, Copy)]
    enum Reply {
        Taken,
        /// The batch is lost.
        Lost,
        /// The batch is taken, and the reply is lost.
        Unknown,
        /// The receiver has lost all that it held.
        Emptied,
    }

    /// A store with these replies, which then takes every batch.
    struct Store(Mutex<(Vec<Reply>, Keys)>);

    impl Store {
        fn lock(&self) -> MutexGuard<'_, (Vec<Reply>, Keys)> {
            self.0.lock()
        }
    }

    impl ConfigSink for Store {
        fn apply(&self, batch: SourceBatch) -> BoxFuture<'static, Result<Applied, Interrupted>> {
            let (replies, held) = &mut *self.lock();
            let reply = replies.pop().unwrap_or(Reply::Taken);
            match (reply, batch.change) {
                (Reply::Lost, _) => {}
                (Reply::Emptied, _) => held.clear(),
                (_, Change::Full(all)) => *held = all.iter().map(|c| c.key()).collect(),
                (_, Change::Delta { upserts, deletes }) => {
                    held.extend(upserts.iter().map(|c| c.key()));
                    held.retain(|key| !deletes.contains(key));
                }
            }
            let taken = matches!(reply, Reply::Taken);
            Box::pin(ready(if taken { Ok(Applied::default()) } else { Err(Interrupted) }))
        }
    }

    fn delivery(replies: Vec<Reply>) -> (Delivery, Arc<Store>) {
        let store = Arc::new(Store(Mutex::new((replies, Keys::new()))));
        let port = SourcePort {
            sink: store.clone(),
            board: Arc::new(SourceBoard::new("test".into())),
            stop: CancellationToken::new(),
            resync: Arc::default(),
            confirm: Arc::default(),
        };
        (Delivery::new("test".into(), port, false), store)
    }

    fn entry(name: u8) -> Arc<Config> {
        let object = json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
            "metadata": {"name": format!("o{name}"), "namespace": "ns"}, "spec": {"hosts": ["a.example"]}});
        Arc::new(decode::from_value(&object, Origin::default()).unwrap())
    }

    const NOTHING: Change = Change::Delta { upserts: Vec::new(), deletes: Vec::new() };

    #[tokio::test]
    async fn the_first_batch_is_full_even_if_empty_and_an_empty_change_is_not_sent() {
        let (mut delivery, _) = delivery(vec![Reply::Taken, Reply::Lost]);
        assert!(!delivery.send(NOTHING, Vec::new).await);
        assert!(!delivery.is_delivered() && delivery.retry_at(Instant::now()).is_some());
        delivery.report(Status { objects: 1, ..Status::default() }, |_| {});
        assert_eq!(delivery.board().read().state, SourceState::Starting);
        assert!(delivery.send(NOTHING, Vec::new).await);
        assert!(delivery.is_delivered() && delivery.retry_at(Instant::now()).is_none());
        assert!(!delivery.send(NOTHING, || panic!("no full snapshot is owed")).await);
        delivery.report(Status { is_stale: true, ..Status::default() }, |_| {});
        assert_eq!(delivery.board().read().state, SourceState::Stale);
    }

    #[tokio::test]
    async fn a_request_that_was_not_waited_for_is_kept() {
        let (delivery, _) = delivery(Vec::new());
        delivery.port.resync.notify_one();
        delivery.port.confirm.notify_one();
        assert_eq!(delivery.request().await, Request::Resync);
        assert_eq!(delivery.request().await, Request::Confirm);
        delivery.port.stop.cancel();
        assert_eq!(delivery.request().await, Request::Stop);
    }

    proptest! {
        #[test]
        fn after_a_batch_that_was_taken_the_store_holds_the_content(
            changes in proptest::collection::vec((any::<bool>(), 0..8_u8), 1..40),
            replies in proptest::collection::vec(
                prop::sample::select(vec![Reply::Taken, Reply::Lost, Reply::Unknown, Reply::Emptied]), 0..40),
        ) {
            let (mut delivery, store) = delivery(replies);
            let mut content = std::collections::BTreeMap::new();
            for (is_there, name) in changes {
                let object = entry(name);
                let key = object.key();
                let change = if is_there {
                    content.insert(key, object.clone());
                    Change::Delta { upserts: vec![object], deletes: Vec::new() }
                } else {
                    content.remove(&key);
                    Change::Delta { upserts: Vec::new(), deletes: vec![key] }
                };
                let sent = delivery.send(change, || content.values().cloned().collect());
                if futures::executor::block_on(sent) {
                    prop_assert_eq!(&store.lock().1, &content.keys().cloned().collect::<Keys>());
                    prop_assert!(!delivery.owes_full());
                } else {
                    prop_assert!(delivery.owes_full());
                }
            }
        }
    }
}
