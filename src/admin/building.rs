//! Building of pages beside the threads that answer requests: one page at a time, with a bounded queue.

use std::{future::Future, sync::Arc};

use tokio::{runtime::Handle, sync::Semaphore};

/// Requests that may wait for one builder.
const WAITING: usize = 32;

/// The queue of a builder is full, or the page failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many pages are requested at once; try again")]
pub struct Busy;

/// The builders, apart so that expensive pages delay neither the metrics nor the answers over xDS.
#[derive(Debug, Clone)]
pub struct Building {
    pub(super) pages: Builder,
    pub(super) dashboard: Builder,
    pub(super) metrics: Builder,
    pub(super) over_xds: Builder,
}

impl Building {
    /// Builders on this runtime.
    #[must_use]
    pub fn on(runtime: &Handle) -> Self {
        let builder = || Builder {
            runtime: runtime.clone(),
            waiting: Arc::new(Semaphore::new(WAITING)),
            turn: Arc::new(Semaphore::new(1)),
        };
        Self { pages: builder(), dashboard: builder(), metrics: builder(), over_xds: builder() }
    }
}

/// Builds one page at a time.
#[derive(Debug, Clone)]
pub(super) struct Builder {
    runtime: Handle,
    waiting: Arc<Semaphore>,
    turn: Arc<Semaphore>,
}

impl Builder {
    /// Builds after the pages that were requested before it.
    ///
    /// # Errors
    /// [`Busy`] when the queue is full.
    pub(super) async fn build<T, F>(&self, work: F) -> Result<T, Busy>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let _waits = self.waiting.try_acquire().map_err(|_| Busy)?;
        self.build_in_turn(work).await
    }

    /// Builds after the pages that were requested before it, with no bound on the queue: for callers that are bounded
    /// themselves.
    ///
    /// # Errors
    /// [`Busy`] when the page failed.
    pub(super) async fn build_in_turn<T, F>(&self, work: F) -> Result<T, Busy>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let turn = self.turn.clone().acquire_owned().await.map_err(|_| Busy)?;
        let runtime = self.runtime.clone();
        // The permit moves into the work: a caller that goes away does not let the next page begin beside it.
        let built = self.runtime.spawn_blocking(move || {
            let _turn = turn;
            runtime.block_on(work)
        });
        built.await.map_err(|_| Busy)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_is_built_few_wait_and_others_are_told() {
        let building = Building::on(&Handle::current());
        let (release, blocked) = channel::<()>();
        let first = tokio::spawn({
            let pages = building.pages.clone();
            async move { pages.build(async move { blocked.recv().is_err() }).await }
        });
        while building.pages.turn.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let waiting: Vec<_> = (0..WAITING - 1)
            .map(|n| {
                tokio::spawn({
                    let pages = building.pages.clone();
                    async move { pages.build(async move { n }).await }
                })
            })
            .collect();
        while building.pages.waiting.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(building.pages.build(async {}).await, Err(Busy));
        assert_eq!(building.metrics.build(async { 7 }).await, Ok(7), "metrics wait for no page");
        drop(release);
        assert_eq!(first.await.unwrap(), Ok(true));
        for (n, built) in waiting.into_iter().enumerate() {
            assert_eq!(built.await.unwrap(), Ok(n));
        }
        let panics = building.pages.build(async { std::hint::black_box(None::<u32>).unwrap() }).await;
        assert_eq!(panics, Err(Busy));
        assert_eq!(building.pages.build(async { 1 }).await, Ok(1));
    }
}
