//! Leadership: the loop around an election, and its state for other rooms.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use tokio_util::sync::CancellationToken;

use super::{
    election::{Election, Record, Timing},
    ports::LeaseStore,
};
use crate::sources::WriteError;

/// The time that the shutdown waits for writes under way.
const FINISH: Duration = Duration::from_secs(2);
/// Shortest pause after a failed look.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Default)]
struct State {
    until: Option<Instant>,
    holder: String,
    error: String,
    /// The number of terms of this process.
    terms: u64,
}

/// A century, in place of an unlimited term.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Whether this process leads. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Leadership {
    state: Arc<Mutex<State>>,
    writing: Arc<RwLock<()>>,
}

/// Held during one write: the lease is not released before.
#[derive(Debug)]
pub struct Permit(#[allow(dead_code, reason = "held, not read")] OwnedRwLockReadGuard<()>);

/// The leader, for the pages.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct LeaderReport {
    /// Whether this process leads.
    pub leads: bool,
    /// Holder of the lease, as far as is known.
    pub holder: String,
    /// Error of the last access to the lease; empty after a success.
    pub last_error: String,
}

impl Leadership {
    /// Leadership of a process that is the only one, without an election (`ENABLE_LEADER_ELECTION=false`).
    #[must_use]
    pub fn unopposed(me: &str) -> Self {
        let leadership = Self::default();
        let mut state = leadership.lock();
        (state.until, state.terms) = (Some(Instant::now() + FOR_EVER), 1);
        me.clone_into(&mut state.holder);
        drop(state);
        leadership
    }

    /// The number of the current term, if this process leads.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        let state = self.lock();
        state.until.is_some_and(|until| until > Instant::now()).then_some(state.terms)
    }

    /// Permission for one write; `None` unless this process leads.
    #[must_use]
    pub fn permit(&self) -> Option<Permit> {
        let guard = self.writing.clone().try_read_owned().ok()?;
        self.term().map(|_| Permit(guard))
    }

    /// The state of the election.
    #[must_use]
    pub fn report(&self) -> LeaderReport {
        let leads = self.term().is_some();
        let state = self.lock();
        LeaderReport { leads, holder: state.holder.clone(), last_error: state.error.clone() }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }

    fn take(&self, election: &Election, error: Option<&WriteError>) {
        let until = election.leads_until();
        let mut state = self.lock();
        let led = state.until.is_some_and(|until| until > Instant::now());
        if until.is_some() && !led {
            state.terms += 1;
            tracing::info!("this process writes statuses now");
        } else if until.is_none() && led {
            tracing::info!(holder = election.holder(), "this process writes statuses no more");
        }
        state.until = until;
        election.holder().clone_into(&mut state.holder);
        state.error = error.map(ToString::to_string).unwrap_or_default();
    }
}

/// Stands for election until it is stopped, and then releases the lease.
pub async fn campaign(
    store: Arc<dyn LeaseStore>,
    me: String,
    timing: Timing,
    leadership: Leadership,
    stop: CancellationToken,
) {
    let mut election = Election::new(me, timing);
    while !stop.is_cancelled() {
        let round = tokio::time::timeout(timing.renew / 2, look(&*store, &mut election));
        let result = tokio::select! {
            result = round => result.unwrap_or_else(|_| Err(WriteError::Other("no answer in time".to_string()))),
            () = stop.cancelled() => break,
        };
        if let Err(error) = &result
            && leadership.report().last_error != error.to_string()
        {
            tracing::warn!(%error, "cannot read or renew the lease of the process that writes statuses (--write-status)");
        }
        leadership.take(&election, result.as_ref().err());
        let pause = if result.is_ok() { timing.look } else { timing.look.min(RETRY) };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => {}
        }
    }
    let led = election.leads_until().is_some();
    election.refused();
    leadership.take(&election, None);
    if led {
        let _ = tokio::time::timeout(FINISH, leadership.writing.write()).await;
        let give_back = give_back(&*store, &election);
        if tokio::time::timeout(FINISH, give_back).await.is_err() {
            tracing::warn!("the lease was not given back in time");
        }
    }
}

async fn look(store: &dyn LeaseStore, election: &mut Election) -> Result<(), WriteError> {
    let read = store.read().await?;
    let began = Instant::now();
    let Some(record) = election.next(began, read) else { return Ok(()) };
    match store.write(record).await {
        Ok(()) => {
            election.written(began);
            Ok(())
        }
        // Another process was faster; the next look names it.
        Err(WriteError::Conflict) => {
            election.refused();
            Ok(())
        }
        Err(error) => Err(error),
    }
}

async fn give_back(store: &dyn LeaseStore, election: &Election) {
    let read: Option<Record> = store.read().await.unwrap_or_default();
    if let Some(record) = election.release(read)
        && let Err(error) = store.write(record).await
    {
        tracing::warn!(%error, "the lease was not given back");
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, future::BoxFuture};

    use super::*;

    #[derive(Default)]
    struct Server(Mutex<(Option<Record>, u64)>);

    impl LeaseStore for Arc<Server> {
        fn read(&self) -> BoxFuture<'static, Result<Option<Record>, WriteError>> {
            let record = self.0.lock().0.clone();
            async move { Ok(record) }.boxed()
        }

        fn write(&self, record: Record) -> BoxFuture<'static, Result<(), WriteError>> {
            let mut server = self.0.lock();
            let version = server.0.as_ref().map(|r| r.version.clone()).unwrap_or_default();
            let taken = version == record.version;
            if taken {
                server.1 += 1;
                server.0 = Some(Record { version: server.1.to_string(), ..record });
            }
            async move { if taken { Ok(()) } else { Err(WriteError::Conflict) } }.boxed()
        }
    }

    #[tokio::test]
    async fn a_process_that_is_the_only_one_leads_without_a_lease() {
        let leadership = Leadership::unopposed("me");
        assert_eq!(leadership.term(), Some(1));
        assert!(leadership.permit().is_some());
        let report = leadership.report();
        assert!(report.leads && report.holder == "me" && report.last_error.is_empty(), "{report:?}");
    }

    const TIMING: Timing =
        Timing { lease: Duration::from_secs(60), renew: Duration::from_secs(30), look: Duration::from_millis(5) };

    async fn until(leadership: &Leadership, leads: bool) {
        let wait = async {
            while leadership.term().is_some() != leads {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap();
    }

    #[tokio::test]
    async fn one_leads_and_the_next_follows_when_it_ends() {
        let server = Arc::<Server>::default();
        let stage = |me: &str| {
            let (leadership, stop) = (Leadership::default(), CancellationToken::new());
            let run = campaign(Arc::new(server.clone()), me.into(), TIMING, leadership.clone(), stop.clone());
            (leadership, stop, tokio::spawn(run))
        };
        let (first, stop_first, task) = stage("first");
        until(&first, true).await;
        let (second, stop_second, _) = stage("second");
        while second.report().holder != "first" {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert!(second.permit().is_none());
        let permit = first.permit().unwrap();
        stop_first.cancel();
        until(&first, false).await;
        assert!(first.permit().is_none() && second.term().is_none(), "the lease waits for the write under way");
        drop(permit);
        task.await.unwrap();
        until(&second, true).await;
        assert_eq!(server.0.lock().0.as_ref().map(|r| r.transitions), Some(1));
        stop_second.cancel();
    }
}
