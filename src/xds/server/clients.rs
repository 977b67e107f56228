//! The open connections: their number, the choice of the one that makes room, and the memory that each may occupy.
//!
//! A connection is not trusted before it asked for something. When all places are taken, the oldest connection without a stream
//! makes room; one with a stream never does.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    admission::{PeerRate, RequestRate},
    budget::{Budget, Hold, Share},
    name_budget::{NameBudget, NameHold, NameShare},
    options::XdsOptions,
    unread::Unread,
};
use crate::xds::Table;

/// Bytes of requests that have not come whole, of all connections and of one. One request may have 4 MB.
const UNFINISHED: (usize, usize) = (128 << 20, 16 << 20);
/// Bounds on subscribed names without a resource, of all connections and of one.
const UNKNOWN: (usize, usize) = (500_000, 100_000);
/// Streams of one connection whose first request has not come.
const UNOPENED: usize = 4096;
/// Connections beyond the bound that are being closed.
const CLOSING: usize = 4;
/// The time that a connection that makes room has for its end.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// The connections.
#[derive(Debug)]
pub(crate) struct Clients {
    most: usize,
    open: Mutex<Open>,
    /// Notified when a connection that made room is closed.
    closed: Notify,
    unfinished: Arc<Budget>,
    unknown: Arc<Budget>,
    names: Arc<NameBudget>,
    nodes: Arc<Budget>,
    unread: Arc<Unread>,
}

#[derive(Debug, Default)]
struct Open {
    last: u64,
    clients: BTreeMap<u64, Arc<Client>>,
    /// Connections that make room and are not closed yet.
    closing: usize,
    /// The state that the connections of an address share, by address.
    rates: Table<Option<IpAddr>, PeerRate>,
}

impl Open {
    fn rate(&self, peer: Option<IpAddr>) -> Arc<PeerRate> {
        self.rates.prune();
        self.rates.one(peer, PeerRate::new(), |_, _| true)
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    number: u64,
    /// Where it comes from.
    pub(crate) peer: Option<SocketAddr>,
    /// When it was accepted.
    pub(crate) since: Instant,
    /// Closes it.
    pub(crate) close: CancellationToken,
    streams: AtomicUsize,
    unopened: AtomicUsize,
    unfinished: Arc<Share>,
    unknown: Arc<Share>,
    names: Arc<NameShare>,
    nodes: Arc<Share>,
    unread: Arc<Unread>,
    rate: Arc<PeerRate>,
}

impl Clients {
    /// Within the bounds of these settings.
    pub(crate) fn new(options: &XdsOptions) -> Self {
        Self {
            most: options.max_connections.max(1),
            open: Mutex::default(),
            closed: Notify::new(),
            unfinished: Budget::new(UNFINISHED.0, UNFINISHED.1),
            unknown: Budget::new(UNKNOWN.0, UNKNOWN.1),
            names: NameBudget::new(options.names),
            nodes: Budget::new(options.node_bytes.0, options.node_bytes.1),
            unread: Unread::new(options.unread),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock()
    }

    /// Takes a connection in; `None` when all places are taken by connections with streams.
    pub(crate) fn enter(&self, peer: Option<SocketAddr>) -> Option<Arc<Client>> {
        let mut open = self.lock();
        if open.clients.len() >= self.most {
            let idle = open.clients.values().find(|client| client.streams.load(Ordering::Relaxed) == 0);
            let number = idle.map(|client| client.number)?;
            if let Some(idle) = open.clients.remove(&number) {
                idle.close.cancel();
                open.closing += 1;
            }
        }
        open.last += 1;
        let rate = open.rate(peer.map(|peer| peer.ip()));
        let client = Arc::new(Client {
            number: open.last,
            peer,
            since: Instant::now(),
            close: CancellationToken::new(),
            streams: AtomicUsize::new(0),
            unopened: AtomicUsize::new(0),
            unfinished: self.unfinished.share(),
            unknown: self.unknown.share(),
            names: self.names.share(),
            nodes: self.nodes.share(),
            unread: self.unread.clone(),
            rate,
        });
        open.clients.insert(client.number, client.clone());
        Some(client)
    }

    /// The connection is gone.
    pub(crate) fn leave(&self, client: &Client) {
        let mut open = self.lock();
        if open.clients.remove(&client.number).is_none() {
            open.closing = open.closing.saturating_sub(1);
            self.closed.notify_waiters();
        }
    }

    /// Waits until the connections that make room are closed, but for a few: they use descriptors until then, and more than
    /// the bound must not be used.
    pub(crate) async fn room(&self) {
        let closed = async {
            loop {
                let mut closed = std::pin::pin!(self.closed.notified());
                closed.as_mut().enable();
                if self.lock().closing < CLOSING {
                    return;
                }
                closed.await;
            }
        };
        // A connection that does not end must not stop others from coming.
        let _ = tokio::time::timeout(CLOSED_WITHIN, closed).await;
    }

    /// The number of them.
    pub(crate) fn count(&self) -> usize {
        self.lock().clients.len()
    }

    /// Distinct bytes of responses that wait for clients to read.
    pub(crate) fn unread(&self) -> usize {
        self.unread.bytes()
    }

    /// Bytes of unfinished requests, subscribed names without a resource, all of them, and bytes of nodes.
    pub(crate) fn held(&self) -> (usize, usize, usize, usize) {
        (self.unfinished.held(), self.unknown.held(), self.names.held(), self.nodes.held())
    }
}

impl Client {
    /// A stream begins; `None` when too many of the connection have not asked for anything yet.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<Turn> {
        self.streams.fetch_add(1, Ordering::Relaxed);
        let unopened = self.unopened.fetch_add(1, Ordering::Relaxed);
        let turn = Turn { client: self.clone(), opened: false };
        (unopened < UNOPENED).then_some(turn)
    }
}

/// A stream of a connection, for as long as it lasts.
#[derive(Debug)]
pub(crate) struct Turn {
    client: Arc<Client>,
    opened: bool,
}

impl Turn {
    /// The connection.
    pub(crate) const fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The first request has come.
    pub(crate) fn opened(&mut self) {
        if !std::mem::replace(&mut self.opened, true) {
            self.client.unopened.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Bytes for the transport, counted until the client has read them.
    pub(crate) fn lend(&self, bytes: Bytes) -> Bytes {
        self.client.unread.lend(self.client.number, &self.client.close, bytes)
    }

    /// Bytes of requests that have not come whole.
    pub(crate) fn unfinished(&self) -> Hold {
        Hold::new(self.client.unfinished.clone())
    }

    /// The rate of the stream's requests.
    pub(crate) fn rate(&self) -> RequestRate {
        RequestRate::new(self.client.rate.clone())
    }

    /// Subscribed names without a resource.
    pub(crate) fn unknown(&self) -> Hold {
        Hold::new(self.client.unknown.clone())
    }

    /// Subscribed names.
    pub(crate) fn names(&self) -> NameHold {
        NameHold::new(self.client.names.clone())
    }

    /// Bytes of the stream's node.
    pub(crate) fn node(&self) -> Hold {
        Hold::new(self.client.nodes.clone())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.opened();
        self.client.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_does_nothing_makes_room() {
        let clients = Clients::new(&XdsOptions { max_connections: 3, ..XdsOptions::default() });
        let busy = clients.enter(None).unwrap();
        let turn = busy.begin();
        let (silent, second) = (clients.enter(None).unwrap(), clients.enter(None).unwrap());
        let third = clients.enter(None).unwrap();
        assert!(silent.close.is_cancelled() && !busy.close.is_cancelled() && !second.close.is_cancelled());
        let turns = [second.begin(), third.begin()];
        assert!(clients.enter(None).is_none(), "all are busy");
        drop(turns);
        assert!(clients.enter(None).is_some() && second.close.is_cancelled());
        clients.leave(&busy);
        drop(turn);
        assert_eq!(clients.count(), 2);
    }

    #[tokio::test]
    async fn the_next_waits_until_those_that_make_room_are_closed_and_not_for_ever() {
        let clients = Clients::new(&XdsOptions { max_connections: 10, ..XdsOptions::default() });
        let all: Vec<_> = (0..10 + CLOSING).map(|_| clients.enter(None).unwrap()).collect();
        let mut room = std::pin::pin!(clients.room());
        assert!(futures::poll!(&mut room).is_pending());
        clients.leave(&all[10]);
        assert!(futures::poll!(&mut room).is_pending(), "one that has made no room does not count");
        clients.leave(&all[0]);
        assert!(futures::poll!(&mut room).is_ready());
        clients.enter(None).unwrap();
        clients.enter(None).unwrap();
        clients.room().await;
    }

    #[test]
    fn streams_that_never_ask_are_bound() {
        let client = Clients::new(&XdsOptions::default()).enter(None).unwrap();
        let mut turns: Vec<_> = (0..UNOPENED).filter_map(|_| client.begin()).collect();
        assert!(turns.len() == UNOPENED && client.begin().is_none());
        turns.iter_mut().take(2).for_each(Turn::opened);
        assert!(client.begin().is_some());
        drop(turns);
        assert_eq!((client.streams.load(Ordering::Relaxed), client.unopened.load(Ordering::Relaxed)), (0, 0));
    }
}
