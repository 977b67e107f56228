//! A store that lost everything asks again.

use std::{fs, time::Duration};

use pilothouse::{
    settings::SourceSettings,
    sources::{Change, file::FileSource},
};

use super::{Stage, entries};
use crate::recorder::{Recorder, run};

#[tokio::test]
async fn a_resync_sends_everything_again() {
    let stage = Stage::set(&entries(3)).await;
    stage.port.resync.notify_one();
    let fulls =
        |r: &Recorder| r.batches().iter().filter(|b| matches!(&b.change, Change::Full(c) if c.len() == 3)).count();
    let recorder = stage.recorder.clone();
    stage.until(|_| fulls(&recorder) == 2).await;
}

#[tokio::test]
async fn a_source_that_starts_again_takes_nothing_back() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entries(3)).unwrap();
    let settings = SourceSettings { deletion_hold: Duration::ZERO, ..SourceSettings::default() };
    let source = FileSource::new(dir.path(), Vec::new(), settings);
    for _ in 0..2 {
        let (port, recorder) = run(&source);
        recorder.until(|told| told.0.len() == 3).await;
        let is_whole = |change: &Change| matches!(change, Change::Full(all) if all.len() == 3);
        assert!(recorder.batches().iter().all(|batch| is_whole(&batch.change)), "{:?}", recorder.batches());
        port.stop.cancel();
    }
}
