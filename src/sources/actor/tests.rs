//! A source that panics, ends or goes silent begins anew under the same address, and deletes nothing.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    model::Interrupted,
    runtime::{RestartBudget, Shutdown, Supervision},
    sources::{Applied, Change, ConfigSink, SourceBatch, SourceBoard, SourceId},
};

/// The behaviour of a run of the test source after its first batch.
#[derive(Clone, Copy)]
enum Fault {
    /// Before it has delivered anything.
    Early,
    Panic,
    End,
    Hang,
    None,
}

/// Each run takes the next fault; after the last one it works.
struct Faulty {
    faults: Vec<Fault>,
    runs: Arc<AtomicUsize>,
}

impl Source for Faulty {
    fn id(&self) -> SourceId {
        "test".into()
    }

    fn run(&self, port: SourcePort) -> BoxFuture<'static, anyhow::Result<()>> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst);
        let fault = self.faults.get(run).copied().unwrap_or(Fault::None);
        Box::pin(async move {
            let full = || SourceBatch { source: "test".into(), change: Change::Full(Vec::new()) };
            if matches!(fault, Fault::Early) {
                anyhow::bail!("nothing to be had");
            }
            port.sink.apply(full()).await?;
            port.board.write(|r| r.state = SourceState::Synced);
            match fault {
                Fault::Early => Ok(()),
                Fault::Panic => panic!("as the test wants"),
                Fault::End => Ok(()),
                Fault::Hang => std::future::pending().await,
                Fault::None => loop {
                    port.board.beat();
                    tokio::select! {
                        () = port.stop.cancelled() => return Ok(()),
                        () = port.resync.notified() => drop(port.sink.apply(full()).await?),
                        () = tokio::time::sleep(Duration::from_millis(5)) => {}
                    }
                },
            }
        })
    }
}

#[derive(Default)]
struct Recorder {
    batches: Mutex<Vec<SourceBatch>>,
    came: Notify,
}

impl ConfigSink for Arc<Recorder> {
    fn apply(&self, batch: SourceBatch) -> BoxFuture<'static, Result<Applied, Interrupted>> {
        self.batches.lock().unwrap().push(batch);
        self.came.notify_one();
        Box::pin(async { Ok(Applied::default()) })
    }
}

struct Stage {
    mailbox: Mailbox<SourceActor>,
    recorder: Arc<Recorder>,
    supervision: Supervision,
    shutdown: Shutdown,
    board: Arc<SourceBoard>,
    stop: CancellationToken,
}

impl Stage {
    fn set(faults: &[Fault], restarts: u32) -> Self {
        let shutdown = Shutdown::default();
        let budget = RestartBudget::new(restarts, shutdown.clone());
        let supervision = Supervision::new(budget, Duration::from_millis(1), Duration::from_millis(4));
        let (recorder, stop) = (Arc::new(Recorder::default()), CancellationToken::new());
        let board = Arc::new(SourceBoard::new("test".into()));
        let port = SourcePort {
            sink: Arc::new(recorder.clone()),
            board: board.clone(),
            stop: stop.clone(),
            resync: Arc::default(),
            confirm: Arc::default(),
        };
        let source = Arc::new(Faulty { faults: faults.to_vec(), runs: Arc::default() });
        let mailbox = SourceActor::start(source, port, supervision.admit("source test"), Duration::from_millis(40));
        Self { mailbox, recorder, supervision, shutdown, board, stop }
    }

    async fn batches(&self, count: usize) {
        let enough = async {
            while self.recorder.batches.lock().unwrap().len() < count {
                self.recorder.came.notified().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), enough).await.unwrap();
    }
}

#[actix::test]
async fn panicking_ending_and_hanging_runs_begin_anew_and_resync() {
    let stage = Stage::set(&[Fault::Panic, Fault::End, Fault::Hang], 100);
    stage.batches(4).await;
    assert_eq!(stage.supervision.reports()[0].restarts, 3);
    assert_eq!(stage.board.read().restarts, 3);
    assert!(stage.recorder.batches.lock().unwrap().iter().all(|b| matches!(b.change, Change::Full(_))));
    // The address that was handed out at the start still reaches the actor.
    stage.mailbox.send(Resync).await.unwrap();
    stage.batches(5).await;
    assert!(!stage.shutdown.has_begun());
    stage.stop.cancel();
}

#[actix::test]
async fn a_source_that_never_delivered_is_not_stale_but_still_starting() {
    let stage = Stage::set(&[Fault::Early, Fault::Early, Fault::End], 100);
    let states = Arc::new(Mutex::new(Vec::new()));
    let (seen, board) = (states.clone(), stage.board.clone());
    let failed_twice = board.until(move |r| {
        seen.lock().unwrap().push(r.state);
        r.restarts == 2
    });
    tokio::time::timeout(Duration::from_secs(20), failed_twice).await.unwrap();
    assert!(states.lock().unwrap().iter().all(|s| *s == SourceState::Starting), "{states:?}");
    assert!(stage.board.read().last_error.contains("nothing to be had"));
    // The third run delivers and ends: the content that it left is stale.
    let stale = stage.board.until(|r| r.restarts == 3 && r.state != SourceState::Starting);
    tokio::time::timeout(Duration::from_secs(20), stale).await.unwrap();
    stage.stop.cancel();
}

#[actix::test]
async fn more_restarts_than_the_budget_end_the_process() {
    let stage = Stage::set(&[Fault::Panic; 10], 3);
    tokio::time::timeout(Duration::from_secs(20), stage.shutdown.begun()).await.unwrap();
    assert!(stage.shutdown.fault().unwrap().contains("source test"));
    assert!(stage.supervision.reports()[0].last_error.contains("as the test wants"));
    stage.stop.cancel();
}

#[actix::test]
async fn an_ordered_restart_is_one() {
    let stage = Stage::set(&[], 100);
    stage.batches(1).await;
    stage.mailbox.send(Restart).await.unwrap();
    stage.batches(2).await;
    assert_eq!(stage.supervision.reports()[0].restarts, 1);
    stage.stop.cancel();
}
