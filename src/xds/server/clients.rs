//! The open connections: their number, the choice of the one that makes room, and the memory that each may occupy.
//!
//! A connection is not trusted before it asked for something. When all places are taken, the oldest connection without a stream
//! makes room; one with a stream never does.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use tokio_util::sync::CancellationToken;

use super::{
    admission::{PeerRate, RequestRate},
    budget::{Budget, Hold, Share},
};

/// Bytes of requests that have not come whole, of all connections and of one. One request may have 4 MB.
const UNFINISHED: (usize, usize) = (128 << 20, 16 << 20);
/// Bounds on subscribed names without a resource, of all connections and of one.
const UNKNOWN: (usize, usize) = (500_000, 100_000);
/// Bytes of the nodes of open streams, of all connections and of one. A node of Istio's agent has 5 to 20 kB; 256 kB are admitted.
const NODES: (usize, usize) = (1 << 30, 16 << 20);
/// Streams of one connection whose first request has not come.
const UNOPENED: usize = 4096;

/// The connections.
#[derive(Debug)]
pub(crate) struct Clients {
    most: usize,
    open: Mutex<Open>,
    unfinished: Arc<Budget>,
    unknown: Arc<Budget>,
    nodes: Arc<Budget>,
}

#[derive(Debug, Default)]
struct Open {
    last: u64,
    clients: BTreeMap<u64, Arc<Client>>,
    /// The state that the connections of an address share, by address.
    rates: HashMap<Option<IpAddr>, Weak<PeerRate>>,
}

impl Open {
    fn rate(&mut self, peer: Option<IpAddr>) -> Arc<PeerRate> {
        if let Some(rate) = self.rates.get(&peer).and_then(Weak::upgrade) {
            return rate;
        }
        if self.rates.len() == self.rates.capacity() {
            self.rates.retain(|_, rate| rate.strong_count() > 0);
        }
        let rate = PeerRate::new();
        self.rates.insert(peer, Arc::downgrade(&rate));
        rate
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
    nodes: Arc<Share>,
    rate: Arc<PeerRate>,
}

impl Clients {
    /// At most so many at once.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            open: Mutex::default(),
            unfinished: Budget::new(UNFINISHED.0, UNFINISHED.1),
            unknown: Budget::new(UNKNOWN.0, UNKNOWN.1),
            nodes: Budget::new(NODES.0, NODES.1),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in; `None` when all places are taken by connections with streams.
    pub(crate) fn enter(&self, peer: Option<SocketAddr>) -> Option<Arc<Client>> {
        let mut open = self.lock();
        if open.clients.len() >= self.most {
            let idle = open.clients.values().find(|client| client.streams.load(Ordering::Relaxed) == 0);
            let number = idle.map(|client| client.number)?;
            if let Some(idle) = open.clients.remove(&number) {
                idle.close.cancel();
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
            nodes: self.nodes.share(),
            rate,
        });
        open.clients.insert(client.number, client.clone());
        Some(client)
    }

    /// The connection is gone.
    pub(crate) fn leave(&self, client: &Client) {
        self.lock().clients.remove(&client.number);
    }

    /// The number of them.
    pub(crate) fn count(&self) -> usize {
        self.lock().clients.len()
    }

    /// Bytes of unfinished requests, subscribed names without a resource, and bytes of nodes.
    pub(crate) fn held(&self) -> (usize, usize, usize) {
        (self.unfinished.held(), self.unknown.held(), self.nodes.held())
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
        let clients = Clients::new(3);
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

    #[test]
    fn streams_that_never_ask_are_bound() {
        let client = Clients::new(1).enter(None).unwrap();
        let mut turns: Vec<_> = (0..UNOPENED).filter_map(|_| client.begin()).collect();
        assert!(turns.len() == UNOPENED && client.begin().is_none());
        turns.iter_mut().take(2).for_each(Turn::opened);
        assert!(client.begin().is_some());
        drop(turns);
        assert_eq!((client.streams.load(Ordering::Relaxed), client.unopened.load(Ordering::Relaxed)), (0, 0));
    }
}
