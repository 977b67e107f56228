//! A sink that records its batches.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use futures::future::BoxFuture;
use pilothouse::{
    model::Interrupted,
    sources::{Applied, Change, ConfigSink, Source, SourceBatch, SourceBoard, SourcePort},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Remembers batches.
#[derive(Default)]
pub struct Recorder {
    batches: Mutex<Vec<SourceBatch>>,
    came: Notify,
}

/// Runs a source into a recorder.
pub fn run(source: &impl Source) -> (SourcePort, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let port = SourcePort {
        sink: recorder.clone(),
        board: Arc::new(SourceBoard::new(source.id())),
        stop: CancellationToken::new(),
        resync: Arc::default(),
        confirm: Arc::default(),
    };
    tokio::spawn(source.run(port.clone()));
    (port, recorder)
}

impl ConfigSink for Recorder {
    fn apply(&self, batch: SourceBatch) -> BoxFuture<'static, Result<Applied, Interrupted>> {
        self.batches().push(batch);
        self.came.notify_waiters();
        Box::pin(async { Ok(Applied::default()) })
    }
}

impl Recorder {
    /// The batches so far.
    pub fn batches(&self) -> MutexGuard<'_, Vec<SourceBatch>> {
        self.batches.lock().unwrap()
    }

    /// The host in force of each ServiceEntry, and the number of deletions, over all batches so far.
    pub fn told(&self) -> (Vec<String>, usize) {
        let (mut hosts, mut deleted) = (BTreeMap::new(), 0);
        for batch in self.batches().iter() {
            let upserts = match &batch.change {
                Change::Full(all) => {
                    hosts.clear();
                    all
                }
                Change::Delta { upserts, deletes } => {
                    deletes.iter().for_each(|k| drop(hosts.remove(k)));
                    deleted += deletes.len();
                    upserts
                }
            };
            hosts.extend(upserts.iter().map(|c| (c.key(), c.service_entry().unwrap().hosts[0].clone())));
        }
        (hosts.into_values().collect(), deleted)
    }

    /// Waits until the delivered content satisfies this.
    pub async fn until(&self, says: impl Fn(&(Vec<String>, usize)) -> bool) {
        let wait = async {
            loop {
                let mut came = std::pin::pin!(self.came.notified());
                came.as_mut().enable();
                if says(&self.told()) {
                    return;
                }
                came.await;
            }
        };
        let waited = tokio::time::timeout(crate::DEADLINE, wait).await;
        assert!(waited.is_ok(), "{:?}", self.told());
    }
}
