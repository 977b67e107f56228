//! What waits for an actor: counted by the sender and by the actor, since actix does not tell.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use actix::{Actor, Addr, Handler, MailboxError, Message, dev::ToEnvelope};

/// The numbers of one actor's queue.
#[derive(Debug)]
pub struct Queue {
    name: Arc<str>,
    waiting: AtomicUsize,
    handled: AtomicU64,
    last_message: AtomicU64,
    restarts: AtomicU32,
    last_error: Mutex<String>,
}

/// The numbers as they stand, for `/debug/queuez`.
#[derive(Debug, Clone, serde::Serialize)]
pub struct QueueReport {
    /// Actor.
    pub actor: Arc<str>,
    /// Messages sent and not yet taken up.
    pub waiting: usize,
    /// Messages taken up since the start.
    pub handled: u64,
    /// When the last one was taken up, in Unix milliseconds; 0 when none was.
    pub last_message_unix_ms: u64,
    /// Restarts since the start.
    pub restarts: u32,
    /// The last fault; empty when there was none.
    pub last_error: String,
}

impl Queue {
    /// An empty queue of an actor of this name.
    #[must_use]
    pub fn new(name: &str) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            waiting: AtomicUsize::new(0),
            handled: AtomicU64::new(0),
            last_message: AtomicU64::new(0),
            restarts: AtomicU32::new(0),
            last_error: Mutex::new(String::new()),
        })
    }

    /// The actor's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The numbers as they stand.
    #[must_use]
    pub fn report(&self) -> QueueReport {
        QueueReport {
            actor: self.name.clone(),
            waiting: self.waiting.load(Ordering::Relaxed),
            handled: self.handled.load(Ordering::Relaxed),
            last_message_unix_ms: self.last_message.load(Ordering::Relaxed),
            restarts: self.restarts.load(Ordering::Relaxed),
            last_error: self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// The actor takes a message up.
    pub(super) fn take_up(&self) {
        let _ = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        self.handled.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        self.last_message.store(now, Ordering::Relaxed);
    }

    pub(super) fn restarted(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failed(&self, error: &str) {
        error.clone_into(&mut self.last_error.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// An actor's address that counts what is sent. `send` waits for the reply, which is the only back-pressure actix has.
pub struct Mailbox<A: Actor> {
    address: Addr<A>,
    queue: Arc<Queue>,
}

impl<A: Actor> Mailbox<A> {
    /// The mailbox of an address.
    #[must_use]
    pub const fn new(address: Addr<A>, queue: Arc<Queue>) -> Self {
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

    /// Sends a message that needs no reply. Only for messages that merge in the receiver.
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

    /// An actor that has ended takes nothing up, and nothing waits for it.
    fn sent(&self) {
        if self.address.connected() {
            self.queue.waiting.fetch_add(1, Ordering::Relaxed);
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
