//! Responses that clients do not read: a bound on their bytes over all connections.
//!
//! A response is held until its last byte is on the wire. Clients of one view share its bytes, which count once. While more than
//! the limit is held, connections are closed: first those of the bytes that all of their readers have left for longest. A client
//! has some time to read in any case. A closed connection gives everything back that was held for it, and a healthy client
//! comes again; the end of a stream alone would leave the bytes with the transport.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::telemetry::LogThrottle;

/// Pause between two looks at bytes beyond the limit.
const AGAIN: Duration = Duration::from_millis(500);

/// A response that waits for its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waiting {
    /// The place of its bytes: equal places are the same bytes.
    place: usize,
    bytes: usize,
    /// When it was handed to the transport.
    since: Instant,
    /// The number of the connection.
    connection: u64,
}

/// The connections to close, so that no more than `limit` bytes wait. Bytes that a client was given after `before` stay.
fn to_close(waiting: &[Waiting], limit: usize, before: Instant) -> BTreeSet<u64> {
    struct Held {
        bytes: usize,
        newest: Instant,
        readers: HashSet<u64>,
    }
    let (mut places, mut of_connection) = (HashMap::<usize, Held>::new(), HashMap::<u64, Vec<usize>>::new());
    for one in waiting {
        let empty = || Held { bytes: one.bytes, newest: one.since, readers: HashSet::new() };
        let held = places.entry(one.place).or_insert_with(empty);
        held.newest = held.newest.max(one.since);
        held.readers.insert(one.connection);
        of_connection.entry(one.connection).or_default().push(one.place);
    }
    let mut total: usize = places.values().map(|held| held.bytes).sum();
    let mut oldest: Vec<(Instant, usize)> = places.iter().map(|(place, held)| (held.newest, *place)).collect();
    oldest.sort_unstable();
    let mut close = BTreeSet::new();
    for (newest, place) in oldest {
        if total <= limit || newest > before {
            break;
        }
        let readers = places.get(&place).map(|held| held.readers.clone()).unwrap_or_default();
        for connection in readers {
            close.insert(connection);
            for place in of_connection.remove(&connection).unwrap_or_default() {
                let Some(held) = places.get_mut(&place) else { continue };
                if held.readers.remove(&connection) && held.readers.is_empty() {
                    total -= held.bytes;
                }
            }
        }
    }
    close
}

#[derive(Debug, Default)]
struct Held {
    last: u64,
    /// Distinct bytes.
    bytes: usize,
    /// How often each place is held.
    places: HashMap<usize, usize>,
    waiting: BTreeMap<u64, (Waiting, CancellationToken)>,
}

/// The bytes that wait for all clients.
#[derive(Debug)]
pub(crate) struct Unread {
    limit: usize,
    patience: Duration,
    held: Mutex<Held>,
    /// A task looks at bytes beyond the limit.
    watched: AtomicBool,
    lines: LogThrottle,
}

impl Unread {
    /// At most `limit` bytes, and so much time for each reader.
    pub(crate) fn new((limit, patience): (usize, Duration)) -> Arc<Self> {
        let lines = LogThrottle::default();
        Arc::new(Self { limit, patience, held: Mutex::default(), watched: AtomicBool::new(false), lines })
    }

    /// Distinct bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.held.lock().bytes
    }

    /// The bytes for the transport of a connection, which `close` ends; they count until the transport lets go of them.
    pub(super) fn lend(self: &Arc<Self>, connection: u64, close: &CancellationToken, bytes: Bytes) -> Bytes {
        let (place, length) = (bytes.as_ptr() as usize, bytes.len());
        let waiting = Waiting { place, bytes: length, since: Instant::now(), connection };
        let mut held = self.held.lock();
        held.last += 1;
        let number = held.last;
        let times = held.places.entry(place).or_default();
        *times += 1;
        if *times == 1 {
            held.bytes += length;
        }
        held.waiting.insert(number, (waiting, close.clone()));
        let too_many = held.bytes > self.limit;
        drop(held);
        if too_many && !self.watched.swap(true, Ordering::AcqRel) {
            self.watch();
        }
        Bytes::from_owner(Lent { bytes, number, unread: self.clone() })
    }

    /// Closes connections until no more than the limit waits.
    fn watch(self: &Arc<Self>) {
        let unread = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(unread) = unread.upgrade() {
                unread.enforce(Instant::now());
                if unread.bytes() <= unread.limit {
                    unread.watched.store(false, Ordering::Release);
                    // Bytes that came meanwhile have found a task.
                    if unread.bytes() <= unread.limit || unread.watched.swap(true, Ordering::AcqRel) {
                        return;
                    }
                }
                drop(unread);
                tokio::time::sleep(AGAIN).await;
            }
        });
    }

    fn enforce(&self, now: Instant) {
        let Some(before) = now.checked_sub(self.patience) else { return };
        let held = self.held.lock();
        if held.bytes <= self.limit {
            return;
        }
        let bytes = held.bytes;
        let all: Vec<Waiting> = held.waiting.values().map(|(waiting, _)| *waiting).collect();
        let closes: HashMap<u64, CancellationToken> =
            held.waiting.values().map(|(waiting, close)| (waiting.connection, close.clone())).collect();
        drop(held);
        let close = to_close(&all, self.limit, before);
        let open: Vec<_> = close.iter().filter_map(|c| closes.get(c)).filter(|c| !c.is_cancelled()).collect();
        if open.is_empty() {
            return;
        }
        open.iter().for_each(|close| close.cancel());
        metrics::counter!("pilothouse_xds_unread_cut_off").increment(open.len() as u64);
        if let Some(times) = self.lines.note(open.len() as u64) {
            let limit = self.limit;
            tracing::warn!(
                times,
                bytes,
                limit,
                "connections are closed: their clients do not read (--max-unread-bytes)"
            );
        }
    }
}

/// Bytes in the hands of the transport.
struct Lent {
    bytes: Bytes,
    number: u64,
    unread: Arc<Unread>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut held = self.unread.held.lock();
        let Some((waiting, close)) = held.waiting.remove(&self.number) else { return };
        if let Some(times) = held.places.get_mut(&waiting.place) {
            *times -= 1;
            if *times == 0 {
                held.places.remove(&waiting.place);
                held.bytes -= waiting.bytes;
            }
        }
        drop((held, close));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Responses as `(place, age in seconds, connection)`, of ten bytes each.
    fn closed(waiting: &[(usize, u32, u64)], limit: usize) -> Vec<u64> {
        let now = Instant::now() + 1000 * SECOND;
        let of = |(place, age, connection): &(usize, u32, u64)| Waiting {
            place: *place,
            bytes: 10,
            since: now - *age * SECOND,
            connection: *connection,
        };
        to_close(&waiting.iter().map(of).collect::<Vec<_>>(), limit, now - 10 * SECOND).into_iter().collect()
    }

    #[test]
    fn those_that_wait_longest_are_closed_first_and_no_more_than_needed() {
        let waiting = [(1, 20, 1), (2, 40, 2), (3, 30, 3), (4, 50, 4)];
        assert!(closed(&waiting, 40).is_empty());
        assert_eq!(closed(&waiting, 39), [4]);
        assert_eq!(closed(&waiting, 20), [2, 4]);
        assert_eq!(closed(&waiting, 0), [1, 2, 3, 4]);
    }

    #[test]
    fn a_client_has_time_to_read() {
        assert_eq!(closed(&[(1, 5, 1), (2, 9, 2), (3, 11, 3)], 0), [3]);
    }

    #[test]
    fn shared_bytes_count_once_and_stay_while_one_of_their_readers_is_new() {
        let shared = [(1, 60, 1), (1, 50, 2), (1, 2, 3), (2, 20, 4)];
        assert!(closed(&shared, 20).is_empty());
        assert_eq!(closed(&shared, 10), [4], "the first three would give nothing back before the last of them is late");
        assert_eq!(closed(&[(1, 60, 1), (1, 50, 2), (2, 20, 4)], 10), [1, 2]);
    }

    #[test]
    fn a_connection_gives_everything_back_at_once() {
        let waiting = [(1, 60, 1), (2, 11, 1), (3, 12, 1), (4, 30, 2)];
        assert_eq!(closed(&waiting, 10), [1]);
    }

    #[tokio::test]
    async fn bytes_count_while_the_transport_has_them() {
        let unread = Unread::new((1 << 20, SECOND));
        let (body, close) = (Bytes::from(vec![7; 1000]), CancellationToken::new());
        let first = unread.lend(1, &close, body.clone());
        let second = unread.lend(2, &close, body);
        let other = unread.lend(2, &close, Bytes::from(vec![7; 10]));
        let part = first.slice(..10);
        assert_eq!(unread.bytes(), 1010);
        drop((first, second));
        assert_eq!(unread.bytes(), 1010, "a part holds the whole");
        drop(part);
        assert_eq!(unread.bytes(), 10);
        drop(other);
        assert_eq!(unread.bytes(), 0);
        assert!(unread.held.lock().places.is_empty());
    }

    #[tokio::test]
    async fn connections_are_closed_when_their_time_is_over() {
        let unread = Unread::new((15, Duration::ZERO));
        let closes = [(); 3].map(|()| CancellationToken::new());
        let lend =
            |(number, close): (usize, &CancellationToken)| unread.lend(number as u64, close, Bytes::from(vec![7; 10]));
        let _held: Vec<Bytes> = closes.iter().enumerate().map(lend).collect();
        tokio::time::timeout(20 * SECOND, closes[1].cancelled()).await.unwrap();
        let closed: Vec<bool> = closes.iter().map(CancellationToken::is_cancelled).collect();
        assert_eq!(closed, [true, true, false]);
    }
}
