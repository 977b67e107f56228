//! Notices of changes, made once for all open pages, at most one a second, and only while a page is open.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::{runtime::Handle, sync::watch};
use xxhash_rust::xxh3::Xxh3Default;

use crate::{admin::AdminState, model::ConfigSnapshot};

/// Streams that may be open at once.
pub(super) const MOST: usize = 64;
/// The pause between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// The numbers of the last changes. A topic's number is that of the notice that it last changed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(super) struct Notice {
    /// Number of the notice; unlike those of an earlier process.
    pub(super) v: u64,
    /// Connections and their answers, and with them the pushes.
    pub(super) fleet: u64,
    /// Objects, services, endpoints.
    pub(super) config: u64,
    /// Reports of sources.
    pub(super) sources: u64,
    /// The server is shutting down: the last notice.
    pub(super) closing: bool,
}

/// The published state at one moment, as far as notices tell of it.
#[derive(Debug, Default)]
struct Seen {
    fleet: u64,
    publication: u64,
    objects: Arc<ConfigSnapshot>,
    sources: u64,
    closing: bool,
}

impl Seen {
    fn now(state: &AdminState) -> Self {
        let mut fleet = Xxh3Default::new();
        for connection in state.xds.connections() {
            (&connection.id, connection.exchanges()).hash(&mut fleet);
        }
        let mut sources = Xxh3Default::new();
        for source in state.sources.all().iter() {
            let report = source.board.read();
            (&*report.source, report.state as u8, report.objects, report.since, report.restarts).hash(&mut sources);
            (&report.last_error, report.held_deletions.len(), report.kept.len()).hash(&mut sources);
            Arc::as_ptr(&report.findings).hash(&mut sources);
        }
        state.is_ready().hash(&mut sources);
        Self {
            fleet: fleet.finish(),
            publication: state.xds.current().map_or(0, |published| published.version),
            objects: state.store.snapshot(),
            sources: sources.finish(),
            closing: state.xds.is_shutting_down(),
        }
    }

    /// The notice after `last`, if anything changed since `before`.
    fn notice(&self, before: &Self, last: Notice) -> Option<Notice> {
        let v = last.v + 1;
        let of = |same: bool, number: u64| if same { number } else { v };
        let same_config = self.publication == before.publication && Arc::ptr_eq(&self.objects, &before.objects);
        let next = Notice {
            v: last.v,
            fleet: of(self.fleet == before.fleet, last.fleet),
            config: of(same_config, last.config),
            sources: of(self.sources == before.sources, last.sources),
            closing: self.closing,
        };
        (next != last).then_some(Notice { v, ..next })
    }
}

#[derive(Debug, Default)]
struct Open {
    streams: usize,
    looking: bool,
}

/// The maker of notices.
#[derive(Debug)]
pub(super) struct Changes {
    runtime: Handle,
    notices: watch::Sender<Notice>,
    open: Arc<Mutex<Open>>,
}

/// An open stream of notices; counts until it is dropped.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) notices: watch::Receiver<Notice>,
    open: Arc<Mutex<Open>>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.open.lock().streams -= 1;
    }
}

impl Changes {
    pub(super) fn on(runtime: &Handle) -> Self {
        let v = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let first = Notice { v, fleet: v, config: v, sources: v, closing: false };
        Self { runtime: runtime.clone(), notices: watch::Sender::new(first), open: Arc::default() }
    }

    /// Opens a stream; `None` when too many are.
    pub(super) fn subscribe(&self, state: &AdminState) -> Option<Subscription> {
        let mut open = self.open.lock();
        if open.streams >= MOST {
            return None;
        }
        open.streams += 1;
        if !open.looking {
            open.looking = true;
            self.runtime.spawn(look(state.clone(), self.notices.clone(), self.open.clone()));
        }
        Some(Subscription { notices: self.notices.subscribe(), open: self.open.clone() })
    }
}

/// Looks until no stream is open.
async fn look(state: AdminState, notices: watch::Sender<Notice>, open: Arc<Mutex<Open>>) {
    // What changed while no stream was open is not known: the first look counts as a change.
    let mut before = Seen::default();
    loop {
        let now = Seen::now(&state);
        let last = *notices.borrow();
        if let Some(notice) = now.notice(&before, last) {
            notices.send_replace(notice);
        }
        before = now;
        tokio::time::sleep(PAUSE).await;
        let mut open = open.lock();
        if open.streams == 0 {
            open.looking = false;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_has_the_number_of_the_notice_that_it_changed_with() {
        let objects = Arc::new(ConfigSnapshot::default());
        let seen = |fleet, publication, sources| Seen {
            fleet,
            publication,
            sources,
            objects: objects.clone(),
            closing: false,
        };
        let last = Notice { v: 7, fleet: 3, config: 5, sources: 7, closing: false };
        assert_eq!(seen(1, 1, 1).notice(&seen(1, 1, 1), last), None);
        let next = seen(2, 1, 1).notice(&seen(1, 1, 1), last).unwrap();
        assert_eq!(next, Notice { v: 8, fleet: 8, ..last });
        let next = seen(2, 2, 2).notice(&seen(2, 1, 1), next).unwrap();
        assert_eq!((next.v, next.fleet, next.config, next.sources), (9, 8, 9, 9));
        let other = Seen { objects: Arc::default(), ..seen(2, 2, 2) };
        assert_eq!(other.notice(&seen(2, 2, 2), next).map(|n| n.config), Some(10), "a status alone is a change, too");
        let closing = Seen { closing: true, ..seen(2, 2, 2) };
        assert!(closing.notice(&seen(2, 2, 2), next).is_some_and(|n| n.closing));
    }
}
