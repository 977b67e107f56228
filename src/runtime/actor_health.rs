//! Supervision of actors: the state of one supervised actor, and the restart budget that all actors share.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{Actor, ActorContext, AsyncContext, Context};
use parking_lot::Mutex;

use super::{Apart, Backoff, Mailbox, Panicked, QueueCounters, QueueReport, Shutdown};

/// The number of restarts allowed within a minute, over all actors.
#[derive(Debug, Clone)]
pub struct RestartBudget {
    per_minute: usize,
    recent: Arc<Mutex<VecDeque<Instant>>>,
    shutdown: Shutdown,
}

impl RestartBudget {
    /// A budget; exceeding it ends the process through `shutdown`.
    #[must_use]
    pub fn new(per_minute: u32, shutdown: Shutdown) -> Self {
        Self { per_minute: per_minute as usize, recent: Arc::default(), shutdown }
    }

    /// Spends one restart of the budget.
    pub fn spend(&self, actor: &str) {
        let mut recent = self.recent.lock();
        let now = Instant::now();
        recent.push_back(now);
        while recent.front().is_some_and(|t| now.duration_since(*t) > Duration::from_secs(60)) {
            recent.pop_front();
        }
        if recent.len() > self.per_minute {
            self.shutdown.fail(format!("{} restarts within a minute, the last one of {actor}", recent.len()));
        }
    }
}

/// The supervised actors of the process.
#[derive(Debug, Clone)]
pub struct Supervision {
    queues: Arc<Mutex<Vec<Arc<QueueCounters>>>>,
    budget: RestartBudget,
    first_pause: Duration,
    longest_pause: Duration,
    #[cfg(any(test, feature = "testing"))]
    faults: super::Faults,
}

impl Supervision {
    /// No actors yet.
    #[must_use]
    pub fn new(budget: RestartBudget, first_pause: Duration, longest_pause: Duration) -> Self {
        Self {
            queues: Arc::default(),
            budget,
            first_pause,
            longest_pause,
            #[cfg(any(test, feature = "testing"))]
            faults: super::Faults::from_env(),
        }
    }

    /// The faults to inject into these actors.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub const fn faults(&self) -> &super::Faults {
        &self.faults
    }

    /// Registers an actor and returns its supervision state.
    #[must_use]
    pub fn admit(&self, name: &str) -> ActorHealth {
        let queue = QueueCounters::new(name);
        self.queues.lock().push(queue.clone());
        ActorHealth {
            queue,
            budget: self.budget.clone(),
            backoff: Backoff::new(self.first_pause, self.longest_pause),
            down: false,
            #[cfg(any(test, feature = "testing"))]
            faults: self.faults.clone(),
        }
    }

    /// The queues of all actors, in the order of registration.
    #[must_use]
    pub fn reports(&self) -> Vec<QueueReport> {
        let mut queues = self.queues.lock();
        // A queue without other references belongs to an actor that no longer exists.
        queues.retain(|queue| Arc::strong_count(queue) > 1);
        queues.iter().map(|q| q.report()).collect()
    }
}

/// The supervision state of one actor. The actor keeps it across restarts and calls it at four points: for each message
/// ([`ActorHealth::guard`]), in `restarting`, in `started`, and once its state is complete again ([`ActorHealth::recovered`]).
#[derive(Debug)]
pub struct ActorHealth {
    queue: Arc<QueueCounters>,
    budget: RestartBudget,
    backoff: Backoff,
    down: bool,
    #[cfg(any(test, feature = "testing"))]
    faults: super::Faults,
}

impl ActorHealth {
    /// The queue counters, for the actor's mailbox.
    #[must_use]
    pub fn queue(&self) -> Arc<QueueCounters> {
        self.queue.clone()
    }

    /// A mailbox for the actor's own address.
    #[must_use]
    pub fn mailbox<A>(&self, context: &Context<A>) -> Mailbox<A>
    where
        A: Actor<Context = Context<A>>,
    {
        Mailbox::new(context.address(), self.queue())
    }

    /// Counts a message that is handled without [`ActorHealth::guard`].
    pub fn take_up(&self) {
        self.queue.take_up();
    }

    /// Runs the work of one message in the core. While the actor is down (restarted, back-off not over), no work is run. `None`
    /// means that the message was not handled.
    pub fn guard<A, R>(&mut self, context: &mut Context<A>, work: impl FnOnce() -> R) -> Option<R>
    where
        A: Actor<Context = Context<A>>,
    {
        self.take_up();
        self.run(context, work)
    }

    /// As [`ActorHealth::guard`], for work without a message, such as a timer's.
    pub fn run<A, R>(&mut self, context: &mut Context<A>, work: impl FnOnce() -> R) -> Option<R>
    where
        A: Actor<Context = Context<A>>,
    {
        if self.down {
            return None;
        }
        let (here, began) = (self.workplace(""), Instant::now());
        let done = here.run(work);
        self.queue.worked(began);
        match done {
            Ok(result) => Some(result),
            Err(panicked) => {
                self.fault(context, &panicked);
                None
            }
        }
    }

    /// A runner for work of this actor on another thread; its panic has to be passed to [`ActorHealth::fault`].
    #[must_use]
    pub fn apart(&self) -> Apart {
        self.workplace(", apart")
    }

    #[cfg(any(test, feature = "testing"))]
    fn workplace(&self, place: &str) -> Apart {
        Apart { faults: self.faults.clone(), name: format!("{}{place}", self.queue.name()) }
    }

    #[cfg(not(any(test, feature = "testing")))]
    const fn workplace(&self, _: &str) -> Apart {
        Apart {}
    }

    /// Stops the actor after a panic, because its core may be inconsistent; the supervisor restarts it.
    pub fn fault<A>(&mut self, context: &mut Context<A>, panicked: &Panicked)
    where
        A: Actor<Context = Context<A>>,
    {
        self.queue.failed(&panicked.to_string());
        tracing::error!(actor = self.queue.name(), error = %panicked, "actor restarts");
        self.down = true;
        context.stop();
    }

    /// Counts a restart. Call it in `Supervised::restarting`, after replacing the core.
    pub fn restarting(&mut self) {
        self.down = true;
        self.queue.restarted();
        self.budget.spend(self.queue.name());
    }

    /// Call it in `Actor::started`. After a restart, `resume` runs when the back-off is over; it requests a full resync from
    /// upstream. After a first start nothing happens.
    pub fn started<A>(&mut self, context: &mut Context<A>, resume: impl FnOnce(&mut A, &mut Context<A>) + 'static)
    where
        A: Actor<Context = Context<A>>,
    {
        if self.down {
            let pause = self.backoff.next_pause();
            context.run_later(pause, resume);
        }
    }

    /// Marks the back-off as over, so that messages are handled again. Call it first in `resume`.
    pub fn up(&mut self) {
        self.down = false;
    }

    /// Marks the state as complete again, so that the next fault starts with the first pause.
    pub fn recovered(&mut self) {
        self.backoff.reset();
    }

    /// Whether the actor was restarted and does not handle messages yet.
    #[must_use]
    pub const fn is_down(&self) -> bool {
        self.down
    }
}

#[cfg(test)]
mod tests {
    use actix::{Handler, Message, Supervised, Supervisor};

    use super::*;
    use crate::runtime::Mailbox;

    #[derive(Message)]
    #[rtype(result = "Option<u32>")]
    struct Add(Option<u32>);

    struct Counter {
        actor_health: ActorHealth,
        core: u32,
        resumed: Arc<Mutex<u32>>,
    }

    impl Actor for Counter {
        type Context = Context<Self>;
        fn started(&mut self, context: &mut Self::Context) {
            self.actor_health.started(context, |actor, _| {
                actor.actor_health.up();
                *actor.resumed.lock() += 1;
            });
        }
    }

    impl Supervised for Counter {
        fn restarting(&mut self, _: &mut Self::Context) {
            self.core = 0;
            self.actor_health.restarting();
        }
    }

    impl Handler<Add> for Counter {
        type Result = Option<u32>;
        fn handle(&mut self, message: Add, context: &mut Self::Context) -> Self::Result {
            let core = &mut self.core;
            self.actor_health.guard(context, || {
                *core += message.0.unwrap();
                *core
            })
        }
    }

    fn supervision(per_minute: u32) -> (Supervision, Shutdown) {
        let shutdown = Shutdown::default();
        let budget = RestartBudget::new(per_minute, shutdown.clone());
        (Supervision::new(budget, Duration::from_millis(1), Duration::from_millis(5)), shutdown)
    }

    fn counter(supervision: &Supervision) -> (Mailbox<Counter>, Arc<Mutex<u32>>) {
        let (actor_health, resumed) = (supervision.admit("counter"), Arc::new(Mutex::new(0)));
        let (queue, shared) = (actor_health.queue(), resumed.clone());
        let address = Supervisor::start(move |_| Counter { actor_health, core: 0, resumed: shared });
        (Mailbox::new(address, queue), resumed)
    }

    #[actix::test]
    async fn a_panic_restarts_the_actor_under_its_address_with_a_fresh_core() {
        let (supervision, shutdown) = supervision(10);
        let (mailbox, resumed) = counter(&supervision);
        assert_eq!(mailbox.send(Add(Some(5))).await.unwrap(), Some(5));
        assert_eq!(mailbox.send(Add(None)).await.unwrap(), None);
        let fresh = loop {
            if let Ok(Some(sum)) = mailbox.send(Add(Some(1))).await {
                break sum;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(fresh, 1);
        assert_eq!(*resumed.lock(), 1);
        let report = supervision.reports().remove(0);
        assert_eq!((report.restarts, report.waiting), (1, 0));
        assert!(report.last_error.contains("panicked"));
        assert!(!shutdown.has_begun());
    }

    #[derive(Message)]
    #[rtype(result = "()")]
    struct Block(Option<std::sync::mpsc::Receiver<()>>);

    /// Polls a check all the time, and stalls on request.
    struct Stalled {
        actor_health: ActorHealth,
        looks: Arc<std::sync::atomic::AtomicU32>,
    }

    impl Actor for Stalled {
        type Context = Context<Self>;
        fn started(&mut self, context: &mut Self::Context) {
            context.run_interval(Duration::from_millis(1), |actor: &mut Self, context| {
                let looks = actor.looks.clone();
                actor.actor_health.run(context, || looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
            });
        }
    }

    impl Supervised for Stalled {}

    impl Handler<Block> for Stalled {
        type Result = ();
        fn handle(&mut self, message: Block, context: &mut Self::Context) {
            let to_itself = self.actor_health.mailbox(context);
            self.actor_health.guard(context, || {
                if let Some(blocked) = message.0 {
                    to_itself.tell(Block(None));
                    let _ = blocked.recv();
                }
            });
        }
    }

    #[actix::test]
    async fn a_stalled_actor_shows_its_waiting_messages_and_timers_are_none() {
        let (supervision, _) = supervision(10);
        let actor_health = supervision.admit("stalled");
        let (queue, looks) = (actor_health.queue(), Arc::new(std::sync::atomic::AtomicU32::new(0)));
        let (thread, counted) = (actix::Arbiter::new(), looks.clone());
        let address = Supervisor::start_in_arbiter(&thread.handle(), move |_| Stalled { actor_health, looks: counted });
        let mailbox = Mailbox::new(address, queue);
        while looks.load(std::sync::atomic::Ordering::Relaxed) < 20 {
            tokio::task::yield_now().await;
        }
        let report = || supervision.reports().remove(0);
        assert_eq!((report().handled, report().last_message_unix_ms), (0, 0), "a timer is no message");

        let (release, blocked) = std::sync::mpsc::channel();
        mailbox.tell(Block(Some(blocked)));
        while report().handled == 0 {
            tokio::task::yield_now().await;
        }
        (0..3).for_each(|_| mailbox.tell(Block(None)));
        while report().waiting != 4 {
            assert!(report().waiting <= 4, "{:?}", report());
            tokio::task::yield_now().await;
        }
        assert_eq!(report().handled, 1, "it stalls in the first");
        drop(release);
        while (report().waiting, report().handled) != (0, 5) {
            tokio::task::yield_now().await;
        }
        thread.stop();
        tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
        mailbox.tell(Block(None));
        assert_eq!(report().waiting, 0, "nothing waits for an actor that has ended");
    }

    #[actix::test]
    async fn too_many_restarts_end_the_process() {
        let (supervision, shutdown) = supervision(2);
        let (mailbox, _) = counter(&supervision);
        while !shutdown.has_begun() {
            let _ = mailbox.send(Add(None)).await;
            tokio::task::yield_now().await;
        }
        assert!(shutdown.fault().is_some_and(|f| f.contains("counter")));
    }
}
