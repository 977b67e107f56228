//! The queue of builds: as many run at once as there are places; views that served clients before go first, and of these the oldest.
//! New views do not delay a publication to connected clients.
//!
//! Every fourth permit goes to the build that waits longest, so that none waits for ever.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

/// After this many builds by rank, one goes to the build that waits longest.
const BY_RANK: u64 = 3;

/// Priority of a build: lower goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// Nothing was built for it before.
    pub(super) first: bool,
    /// The number of the slot, in the order of creation.
    pub(super) number: u64,
}

/// The queue, with its places; each is taken by one build at a time.
#[derive(Debug, Clone)]
pub(super) struct BuildQueue(Arc<Mutex<Queue>>);

#[derive(Debug)]
struct Queue {
    free: usize,
    given: u64,
    arrived: u64,
    waiting: BTreeMap<(Rank, u64), oneshot::Sender<BuildPermit>>,
    /// The same in the order of arrival.
    arrivals: BTreeMap<u64, Rank>,
}

/// A place that is taken, until it is dropped.
#[derive(Debug)]
pub(super) struct BuildPermit(BuildQueue);

/// A place in the queue; dropping it leaves the queue.
struct Waiting<'a> {
    builds: &'a BuildQueue,
    key: (Rank, u64),
}

impl BuildQueue {
    pub(super) fn new(places: usize) -> Self {
        let queue =
            Queue { free: places.max(1), given: 0, arrived: 0, waiting: BTreeMap::new(), arrivals: BTreeMap::new() };
        Self(Arc::new(Mutex::new(queue)))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock()
    }

    /// Waits for a place; never `None` while the queue exists.
    pub(super) async fn take(&self, rank: Rank) -> Option<BuildPermit> {
        let (sender, permit) = oneshot::channel();
        let waiting = {
            let mut queue = self.lock();
            if queue.free > 0 {
                queue.free -= 1;
                return Some(BuildPermit(self.clone()));
            }
            queue.arrived += 1;
            let key = (rank, queue.arrived);
            queue.waiting.insert(key, sender);
            queue.arrivals.insert(key.1, rank);
            Waiting { builds: self, key }
        };
        let permit = permit.await.ok();
        drop(waiting);
        permit
    }
}

impl Queue {
    fn next(&mut self) -> Option<oneshot::Sender<BuildPermit>> {
        self.given += 1;
        let patient = self.given.is_multiple_of(BY_RANK + 1);
        let first = if patient { self.arrivals.first_key_value().map(|(at, rank)| (*rank, *at)) } else { None };
        let key = first.or_else(|| self.waiting.first_key_value().map(|(key, _)| *key))?;
        self.arrivals.remove(&key.1);
        self.waiting.remove(&key)
    }
}

impl Drop for BuildPermit {
    fn drop(&mut self) {
        let next = {
            let mut queue = self.0.lock();
            let next = queue.next();
            if next.is_none() {
                queue.free += 1;
            }
            next
        };
        if let Some(next) = next {
            // A waiter that has just left the queue passes the place on by dropping the permit.
            let _ = next.send(Self(self.0.clone()));
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut queue = self.builds.lock();
        queue.waiting.remove(&self.key);
        queue.arrivals.remove(&self.key.1);
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt, stream::FuturesUnordered};

    use super::*;

    const fn rank(first: bool, number: u64) -> Rank {
        Rank { first, number }
    }

    #[tokio::test]
    async fn clients_that_were_served_before_go_first_and_none_starves() {
        let builds = BuildQueue::new(1);
        let held = builds.take(rank(true, 0)).await;
        let mut waiting = FuturesUnordered::new();
        let ranks = [rank(true, 9), rank(true, 8), rank(false, 7), rank(false, 2), rank(true, 1)];
        for rank in ranks {
            let builds = &builds;
            waiting.push(async move { (rank, builds.take(rank).await) });
            // It joins the queue when it is looked at.
            assert!(waiting.next().now_or_never().is_none());
        }
        drop(held);
        let mut order = Vec::new();
        while let Some((rank, permit)) = waiting.next().await {
            order.push((rank.first, rank.number));
            drop(permit);
        }
        assert_eq!(order, [(false, 2), (false, 7), (true, 1), (true, 9), (true, 8)], "the fourth waited longest");
    }

    #[tokio::test]
    async fn an_abandoned_wait_keeps_no_place() {
        let builds = BuildQueue::new(1);
        let held = builds.take(rank(false, 1)).await;
        {
            let mut gone = Box::pin(builds.take(rank(false, 0)));
            assert!(gone.as_mut().now_or_never().is_none());
            let mut told = Box::pin(builds.take(rank(false, 2)));
            assert!(told.as_mut().now_or_never().is_none());
            drop(gone);
            // It is given the place and does not look any more.
            drop(held);
        }
        assert!(builds.take(rank(true, 3)).now_or_never().is_some());
        assert!(builds.lock().waiting.is_empty() && builds.lock().arrivals.is_empty());
    }
}
