//! A store that lost everything asks again.

use pilothouse::sources::Change;

use super::{Stage, entries};
use crate::recorder::Recorder;

#[tokio::test]
async fn a_resync_sends_everything_again() {
    let stage = Stage::set(&entries(3)).await;
    stage.port.resync.notify_one();
    let fulls =
        |r: &Recorder| r.batches().iter().filter(|b| matches!(&b.change, Change::Full(c) if c.len() == 3)).count();
    let recorder = stage.recorder.clone();
    stage.until(|_| fulls(&recorder) == 2).await;
}
