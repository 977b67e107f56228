//! Notices of changes, made once for all open pages, at most one a second, and only while a page is open.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::watch;
use xxhash_rust::xxh3::Xxh3Default;

use crate::{
    admin::{
        AdminState,
        memory::{Notice, Open},
    },
    model::ConfigSnapshot,
};

/// Streams that may be open at once.
pub(super) const MOST: usize = 64;
/// The pause between two looks.
const PAUSE: Duration = Duration::from_secs(1);

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

/// Opens a stream; `None` when too many are.
pub(super) fn subscribe(state: &AdminState) -> Option<Subscription> {
    let shared = state.dashboard.shared();
    let mut open = shared.open.lock();
    if open.streams >= MOST {
        return None;
    }
    open.streams += 1;
    if !open.looking {
        open.looking = true;
        shared.runtime.spawn(look(state.clone(), shared.notices.clone(), shared.open.clone()));
    }
    Some(Subscription { notices: shared.notices.subscribe(), open: shared.open.clone() })
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
