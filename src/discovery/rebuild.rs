//! Resources whose generator failed are made again after a pause, without waiting for another change: until then their
//! clients are served the earlier ones.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::state::XdsState;
use crate::runtime::{Backoff, catch};

/// Pause before the first trial; it doubles with each failure in a row.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The pauses before the trials of a server.
pub(super) const fn pauses() -> Backoff {
    Backoff::new(FIRST_PAUSE, LONGEST_PAUSE)
}

/// Makes failed resources again after these pauses, until `stop`.
pub(super) async fn rebuild(state: XdsState, mut backoff: Backoff, stop: CancellationToken) {
    let mut last: Option<Instant> = None;
    let work = async {
        loop {
            state.builder().failed().await;
            if last.is_some_and(|at| at.elapsed() > 2 * LONGEST_PAUSE) {
                backoff.reset();
            }
            tokio::time::sleep(backoff.next_pause()).await;
            let again = state.clone();
            let failed = state.builder().take_failures();
            let made = tokio::task::spawn_blocking(move || catch(|| again.publish_again(&failed))).await;
            if let Ok(Err(error)) = made {
                tracing::error!(%error, "failed resources are not made again");
            }
            last = Some(Instant::now());
        }
    };
    stop.run_until_cancelled(work).await;
}
