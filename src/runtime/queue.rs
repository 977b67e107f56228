//! Statistics of actor queues, counted by sender and actor because actix provides none.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use actix::{Actor, Addr, Handler, MailboxError, Message, dev::ToEnvelope};
use parking_lot::Mutex;

/// The counters of one actor's queue.
#[derive(Debug)]
pub struct QueueCounters {
    name: Arc<str>,
    waiting: AtomicUsize,
    handled: AtomicU64,
    last_message: AtomicU64,
    restarts: AtomicU32,
    last_error: Mutex<String>,
    /// When the waiting messages were sent, oldest first; not more than [`MOST_TIMED`].
    sent: Mutex<VecDeque<Instant>>,
}

/// Waiting messages whose wait is measured.
const MOST_TIMED: usize = 1024;

/// A snapshot of the counters, for `/debug/queuez`.
#[derive(Debug, Clone, serde::Serialize)]
pub struct QueueReport {
    /// Name of the actor.
    pub actor: Arc<str>,
    /// Number of messages sent and not yet received by the actor.
    pub waiting: usize,
    /// Number of messages received since the start.
    pub handled: u64,
    /// Time of the last received message, in Unix milliseconds; 0 without one.
    pub last_message_unix_ms: u64,
    /// Number of restarts since the start.
    pub restarts: u32,
    /// Text of the last fault; empty without one.
    pub last_error: String,
}

impl QueueCounters {
    /// An empty queue of the actor with this name.
    #[must_use]
    pub fn new(name: &str) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            waiting: AtomicUsize::new(0),
            handled: AtomicU64::new(0),
            last_message: AtomicU64::new(0),
            restarts: AtomicU32::new(0),
            last_error: Mutex::new(String::new()),
            sent: Mutex::default(),
        })
    }

    /// Name of the actor.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A snapshot of the counters.
    #[must_use]
    pub fn report(&self) -> QueueReport {
        QueueReport {
            actor: self.name.clone(),
            waiting: self.waiting.load(Ordering::Relaxed),
            handled: self.handled.load(Ordering::Relaxed),
            last_message_unix_ms: self.last_message.load(Ordering::Relaxed),
            restarts: self.restarts.load(Ordering::Relaxed),
            last_error: self.last_error.lock().clone(),
        }
    }

    /// Counts a message that the actor received.
    pub(super) fn take_up(&self) {
        let _ = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        self.handled.fetch_add(1, Ordering::Relaxed);
        let sent = self.sent.lock().pop_front();
        if let Some(sent) = sent {
            let waited = sent.elapsed().as_secs_f64();
            metrics::histogram!("pilot_worker_queue_latency", "queueID" => self.name.to_string()).record(waited);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        self.last_message.store(now, Ordering::Relaxed);
    }

    /// Work at a message is over.
    pub(super) fn worked(&self, since: Instant) {
        let took = since.elapsed().as_secs_f64();
        metrics::histogram!("pilot_worker_queue_duration", "queueID" => self.name.to_string()).record(took);
    }

    pub(super) fn restarted(&self) {
        self.sent.lock().clear();
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failed(&self, error: &str) {
        error.clone_into(&mut self.last_error.lock());
    }
}

/// An actor's address that counts sent messages. `send` waits for the reply, which is the only back-pressure in actix.
pub struct Mailbox<A: Actor> {
    address: Addr<A>,
    queue: Arc<QueueCounters>,
}

impl<A: Actor> Mailbox<A> {
    /// A mailbox for this address.
    #[must_use]
    pub const fn new(address: Addr<A>, queue: Arc<QueueCounters>) -> Self {
        Self { address, queue }
    }

    /// Sends a message and waits for the reply.
    ///
    /// # Errors
    /// `Closed` when the actor stopped before it replied.
    pub async fn send<M>(&self, message: M) -> Result<M::Result, MailboxError>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M>,
    {
        self.sent();
        self.address.send(message).await
    }

    /// Sends a message without a reply. Only for messages that merge in the receiver.
    pub fn tell<M>(&self, message: M)
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M>,
    {
        self.sent();
        self.address.do_send(message);
    }

    /// Counts a sent message. A stopped actor receives nothing, so its queue counts none.
    fn sent(&self) {
        if self.address.connected() {
            self.queue.waiting.fetch_add(1, Ordering::Relaxed);
            let mut sent = self.queue.sent.lock();
            if sent.len() < MOST_TIMED {
                sent.push_back(Instant::now());
            }
        }
    }
}

impl<A: Actor> Clone for Mailbox<A> {
    fn clone(&self) -> Self {
        Self { address: self.address.clone(), queue: self.queue.clone() }
    }
}

impl<A: Actor> fmt::Debug for Mailbox<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mailbox").field(&self.queue.name).finish()
    }
}
